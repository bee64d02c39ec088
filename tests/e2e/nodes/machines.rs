//! The machines themselves: they are private, they cannot be reached, they lose nothing by a reboot, and nothing is left of them.

use super::host::{Options, TestHost};
use super::network::Network;

#[test]
fn a_machine_is_private_and_nothing_is_left_of_it() {
    let network = Network::new();
    let router = network.router(2, "192.168.1");
    let mut host = TestHost::start(&network, &router.lan, "m1", "192.168.1.10", Options::default());
    let before = host.listing();
    assert_eq!(before.differences(&host.listing()), Vec::<String>::new());
    host.shell("echo changed >/etc/changed; mkdir /run/x; touch /var/lib/kubelet/x; rm /etc/debian_version; ip link add br9 type bridge");
    let seen = before.differences(&host.listing()).join("\n");
    for expected in
        ["/etc/changed: absent → file", "/run/x: absent → folder", "/var/lib/kubelet/x: absent", "/etc/debian_version: file", "+ br9"]
    {
        assert!(seen.contains(expected), "{expected} is not in:\n{seen}");
    }
    assert!(!std::path::Path::new("/etc/changed").exists());

    let listener = std::net::TcpListener::bind((network.address.as_str(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let reach = format!("timeout 3 bash -c '</dev/tcp/{}/{port}'", network.address);
    host.fails(&["bash", "-c", &reach]);
    network.open(port);
    host.shell(&reach);
    assert_eq!(network.opened(), 0);
    network.cut(&router.address);
    host.fails(&["bash", "-c", &reach]);
    network.mend(&router.address);
    host.shell(&reach);
    let dialled = network.count(&format!("ip daddr {} tcp dport 22", router.address));
    assert!(
        std::net::TcpStream::connect_timeout(&format!("{}:22", router.address).parse().unwrap(), std::time::Duration::from_secs(1))
            .is_err()
    );
    assert!(network.opened() > 0 && network.counted(&dialled) > 0, "what the platform opens is counted");

    host.spawn("sleeper", &["sleep", "7777"]);
    let sleeper = host.process("sleep").expect("it runs");
    assert!(host.processes().iter().any(|(_, line)| line.contains("7777")));
    host.kill(sleeper);
    assert!(host.process("sleep").is_none_or(|pid| pid != sleeper));
    host.spawn("sleeper", &["sleep", "7777"]);
    let first = host.init();
    host.reboot();
    assert_ne!(host.init(), first);
    assert!(!host.processes().iter().any(|(_, line)| line.contains("7777")), "nothing runs on over a reboot");
    assert_eq!(host.read("/etc/changed"), "changed\n");
    host.shell(&reach);
    let disk = host.upper();
    drop(host);
    assert!(!disk.exists());
}

#[test]
fn a_machine_can_have_systemd_and_a_small_disk() {
    let network = Network::new();
    let host = TestHost::start(&network, &network.lan(), "m2", &network.at(9), Options { systemd: true, disk_mib: Some(64) });
    host.shell("systemctl is-active basic.target");
    host.shell(
        "printf '[Service]\\nType=exec\\nExecStart=/bin/sleep 8888\\n' >/etc/systemd/system/x.service; systemctl daemon-reload; systemctl start x",
    );
    assert!(host.process("sleep").is_some());
    let full = host.fails(&["dd", "if=/dev/zero", "of=/var/lib/kubebyon-node/zero", "bs=1M", "count=100"]);
    assert!(full.contains("No space left"), "{full}");
}
