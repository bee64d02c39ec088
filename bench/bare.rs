//! etcd and kube-apiserver as somebody would start them by hand: the peer of a cluster's creation.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{assets_dir, kubectl};
use crate::measure::until_ok;

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path()).collect();
    entries.iter().find(|p| p.ends_with(name)).cloned().or_else(|| entries.iter().filter(|p| p.is_dir()).find_map(|p| find(p, name)))
}

fn spawn(program: &Path, args: &[String]) -> Child {
    Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The time from nothing to a ready API server; keys are made before the clock starts, which favours the peer.
pub fn ready_after() -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let openssl =
        |args: &[&str]| assert!(Command::new("openssl").args(args).stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    openssl(&["genrsa", "-out", &path("sa.key"), "2048"]);
    let api = free_port();
    let (client, peer) = (free_port(), free_port());
    let started = Instant::now();
    let mut etcd = spawn(
        &find(&assets_dir(), "etcd").filter(|p| p.is_file()).or_else(|| etcd_program(&assets_dir())).expect("etcd is among the assets"),
        &[
            format!("--data-dir={}", path("etcd")),
            format!("--listen-client-urls=http://127.0.0.1:{client}"),
            format!("--advertise-client-urls=http://127.0.0.1:{client}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        ],
    );
    let mut server = spawn(
        &kubectl().with_file_name("kube-apiserver"),
        &[
            format!("--etcd-servers=http://127.0.0.1:{client}"),
            format!("--secure-port={api}"),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={}", path("certs")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", path("sa.key")),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            "--authorization-mode=Node,RBAC".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
        ],
    );
    until_ok(&format!("https://127.0.0.1:{api}/readyz"));
    let took = started.elapsed();
    for child in [&mut server, &mut etcd] {
        let _ = child.kill();
        let _ = child.wait();
    }
    took
}

/// etcd lies in a folder of the same name.
fn etcd_program(dir: &Path) -> Option<PathBuf> {
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for path in std::fs::read_dir(&dir).ok()?.flatten().map(|e| e.path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.ends_with("etcd") {
                return Some(path);
            }
        }
    }
    None
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
