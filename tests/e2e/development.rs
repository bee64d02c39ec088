//! Without root: it runs, and says what is not confined.

use crate::harness::{Platform, assets_dir, binary, kubectl_ok, run};

const NOBODY: u32 = 65_534;

#[test]
fn without_root_it_runs_and_says_what_is_not_confined() {
    let mut platform = Platform::prepare("");
    let dir = platform.dir.path().to_owned();
    let at = |name: &str| dir.join(name).display().to_string();
    // Programs and binary where another user reaches them, whatever folder they come from.
    assert!(run("cp", &["-a", assets_dir().to_str().unwrap(), &at("assets")]).status.success());
    assert!(run("install", &["-m", "755", binary().to_str().unwrap(), &at("kubebyon")]).status.success());
    let text = std::fs::read_to_string(&platform.config).unwrap().replace(&assets_dir().display().to_string(), &at("assets"));
    std::fs::write(&platform.config, text).unwrap();
    platform.binary = Some(dir.join("kubebyon"));
    platform.uid = Some(NOBODY);
    assert!(run("chown", &["-R", &format!("{NOBODY}:{NOBODY}"), dir.to_str().unwrap()]).status.success());

    platform.boot();
    let cluster = platform.create("demo", &[]);
    assert_eq!(cluster["status"]["phase"], "ready");
    let confined = cluster["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Confined").unwrap().clone();
    assert_eq!(confined["status"], false);
    let message = confined["message"].as_str().unwrap();
    assert!(message.contains("nftables") && message.contains("cgroup"), "{message}");
    assert_eq!(kubectl_ok(&platform.kubeconfig("demo", &[]), &["get", "--raw", "/readyz"]), "ok");

    let before = platform.children();
    platform.kill();
    platform.boot();
    assert_eq!(platform.children(), before, "control planes are adopted here too");
    platform.ok(&["cluster", "delete", "demo", "--wait"]);
    assert_eq!(platform.children(), []);
}
