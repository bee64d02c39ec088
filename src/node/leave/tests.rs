//! A machine that joined and leaves is the machine that it was.

use super::*;
use crate::node::join::tests::Joining;
use crate::node::join::tests::platform::Platform;
use crate::node::show::Silent;
use crate::routes::namespace::Namespace;

const OPTIONS: Options = Options { delete_data: false, drain: Duration::ZERO, force: true };

#[test]
fn nothing_differs_from_before_the_join_wherever_it_was_cut() {
    // The network of this machine is nobody's to clear.
    let namespace = Namespace::new();
    namespace.ip("address add 192.0.2.5/32 dev lo");
    namespace.block_on(|| async {
        let platform = Platform::start().await;
        for cut in [None, Some(1), Some(2), Some(4), Some(5), Some(6)] {
            let platform = platform.again();
            let mut machine = Joining::new(&platform);
            machine.options.node_ip = Some([192, 0, 2, 5].into());
            machine.fixture.put("opt/cni/bin/bridge", "a stranger's");
            machine.fixture.put("var/lib/cni/results/docker-1-eth0", "{}");
            let before = machine.listing();
            let (ended, _) = machine.join(cut).await;
            assert!(ended.is_none_or(|ended| ended.is_ok() && cut.is_none()));
            if cut.is_none() {
                for file in [
                    "var/lib/kubelet/pods/u1/volumes/x",
                    "var/log/pods/a/0.log",
                    "usr/libexec/kubernetes/x/y",
                    "etc/cni/net.d/10-x.conflist",
                ] {
                    machine.fixture.put(file, "written while it was a node");
                }
            }
            let layout = machine.fixture.layout();
            let left = run(&OPTIONS, &layout, &Silent).await.unwrap();
            assert!(left.failures.is_empty(), "{cut:?}: {:?}", left.failures);
            assert_eq!(left.name.is_some(), cut.is_none_or(|cut| cut > 2), "{cut:?} {left:?}");
            assert_eq!(machine.listing(), before, "cut at {cut:?}");
            let again = run(&OPTIONS, &layout, &Silent).await.unwrap();
            assert!(again.nothing && again.failures.is_empty());
            assert_eq!(machine.listing(), before);
        }
    });
}

#[test]
fn volumes_that_the_system_lives_in_are_never_emptied() {
    for (folder, expected) in [
        ("/mnt/disks/pv-1", true),
        ("/var/lib/data", true),
        ("/data", true),
        ("/srv/a", true),
        ("/", false),
        ("/mnt", false),
        ("/etc/x", false),
        ("/var/lib", false),
        ("/usr/share", false),
        ("relative/x", false),
    ] {
        assert_eq!(may_empty(Path::new(folder)), expected, "{folder}");
    }
}
