//! The whole of the checks, on this machine.

use super::*;

fn context(data_dir: PathBuf) -> Context {
    Context {
        data_dir,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise_host: None,
        control_plane_host: None,
        node_ports: None,
        cluster_memory: CLUSTER_MEMORY,
        assets: Some(AssetsReport { versions: vec![], problems: vec!["etcd is missing".into()] }),
        resolve: None,
        built_at: Timestamp::from_micros(0),
        ambient: Ambient::system(),
    }
}

#[test]
fn sizes_are_told_in_the_units_of_the_configuration() {
    let shown = [320 << 20, (1 << 30) - 1, 3 << 29, 1 << 40].map(readable);
    assert_eq!(shown, ["320.0 MiB", "1023.9 MiB", "1.5 GiB", "1.0 TiB"]);
}

#[tokio::test]
async fn every_check_says_something_and_all_that_is_not_ok_has_a_remedy_with_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let findings = run(&context(dir.path().into())).await;
    for check in [
        "ports",
        "kernel",
        "privileges",
        "cgroups",
        "nftables",
        "disk",
        "memory",
        "clock",
        "dns",
        "assets",
        "limits",
        "address",
        "data-dir",
    ] {
        assert!(findings.iter().any(|finding| finding.check == check), "{check} is missing in {findings:?}");
    }
    for finding in &findings {
        assert_eq!(finding.status == Status::Ok, finding.remedy.is_none(), "{finding:?}");
        assert!(finding.remedy.as_ref().is_none_or(|remedy| remedy.contains('`')), "{finding:?}");
    }
    assert_eq!(worst(&findings), Status::Failed, "etcd is missing");
}

#[test]
fn findings_are_plain_json() {
    let finding = Finding::failed("disk", "3 % is free.", "Free some: `du -xh /`.");
    let json = serde_json::json!({"check": "disk", "status": "failed", "message": "3 % is free.", "remedy": "Free some: `du -xh /`."});
    assert_eq!(serde_json::to_value(finding).unwrap(), json);
    assert_eq!(
        serde_json::to_value(Finding::ok("disk", "fine")).unwrap(),
        serde_json::json!({"check": "disk", "status": "ok", "message": "fine"})
    );
}
