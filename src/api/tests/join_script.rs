//! The script as a machine runs it: by a POSIX shell, with curl, against a platform that speaks TLS with an authority of its own.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData as _};
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::harness::Api;
use crate::api::state::JoinTrust;
use crate::domain::join::Trust;

/// What stands for kubebyon: it tells what it was called with, and where it lies.
const KUBEBYON: &str = "#!/bin/sh\necho \"called: $*\"\necho \"token: ${KUBEBYON_JOIN_TOKEN:-}\"\necho \"at: $0\"\nexit 7\n";

/// A platform on a port of this machine, and a folder that stands before all others in a machine's PATH.
struct Platform {
    api: Api,
    url: String,
    pin: String,
    machine: tempfile::TempDir,
}

impl Platform {
    async fn new() -> Self {
        let api = Api::new().await;
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let path = format!("kubebyon/{}/{arch}/kubebyon", env!("CARGO_PKG_VERSION"));
        api.parts.files.lock().unwrap().insert(path, KUBEBYON.into());
        let (config, pin) = tls();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        api.put("/api/v1/settings/join_base_url", json!({ "value": url })).local().send().await.expect(StatusCode::OK);
        *api.parts.trust.lock().unwrap() = Some(Ok(JoinTrust { trust: Trust::Authority("ab".repeat(32)), pin: Some(pin.clone()) }));
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let router = api.router.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(tls), TowerToHyperService::new(router)).await;
                });
            }
        });
        let platform = Self { api, url, pin, machine: tempfile::tempdir().unwrap() };
        // Tests may run as anybody.
        platform.program("id", "echo 0");
        platform
    }

    fn bin(&self) -> PathBuf {
        self.machine.path().join("bin")
    }

    fn temporary(&self) -> PathBuf {
        self.machine.path().join("tmp")
    }

    /// Puts a program of that name before the machine's own.
    fn program(&self, name: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir_all(self.bin()).unwrap();
        std::fs::create_dir_all(self.temporary()).unwrap();
        let path = self.bin().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a command line on the machine.
    async fn run(&self, line: &str, environment: &[(&str, &str)]) -> Output {
        let mut command = tokio::process::Command::new("sh");
        command.arg("-c").arg(line).env_clear().kill_on_drop(true);
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.bin().display())).env("TMPDIR", self.temporary());
        command.envs(environment.iter().copied()).output().await.unwrap()
    }

    /// The line that fetches the script and runs it.
    fn line(&self, arguments: &str) -> String {
        format!("curl -fsSLk --pinnedpubkey 'sha256//{}' {}/join.sh | sh -s -- {arguments}", self.pin, self.url)
    }

    /// What the run left in the machine's temporary folder.
    fn left(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.temporary()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

fn tls() -> (rustls::ServerConfig, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    let pin = STANDARD.encode(Sha256::digest(leaf_key.subject_public_key_info()));
    let chain = vec![leaf.der().clone(), authority];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap());
    (config.unwrap(), pin)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn the_pasted_line_runs_the_platforms_own_kubebyon_and_leaves_nothing() {
    let platform = Platform::new().await;
    let ran = platform.run(&platform.line("kbj1_abc --name 'my node'"), &[]).await;
    assert!(out(&ran).contains("called: join kbj1_abc --name my node\n"), "{}{}", out(&ran), said(&ran));
    assert_eq!(ran.status.code(), Some(7), "the end of kubebyon is the end of the script");
    assert!(out(&ran).contains(&format!("at: {}/kubebyon-join.", platform.temporary().display())), "{}", out(&ran));
    assert_eq!(platform.left(), Vec::<PathBuf>::new());
    let ran = platform.run(&platform.line(""), &[("KUBEBYON_JOIN_TOKEN", "kbj1_env")]).await;
    assert!(out(&ran).contains("called: join\ntoken: kbj1_env\n"), "{}{}", out(&ran), said(&ran));
}

#[tokio::test]
async fn a_script_that_was_cut_anywhere_does_nothing() {
    let platform = Platform::new().await;
    platform.program("curl", &format!("echo fetched >>{}", platform.machine.path().join("fetched").display()));
    let script = platform.api.get("/join.sh").header("host", "localhost").send().await.expect(StatusCode::OK).text;
    let file = platform.machine.path().join("join.sh");
    // Each place of the last lines, and some of all others.
    let ends = (script.len() - 60..script.len() - 1).chain((0..script.len() - 60).step_by(197));
    for end in ends {
        std::fs::write(&file, &script[..end]).unwrap();
        platform.run(&format!("sh {} kbj1_abc", file.display()), &[]).await;
    }
    assert!(!platform.machine.path().join("fetched").exists());
    assert_eq!(platform.left(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn another_key_is_not_the_platform() {
    let platform = Platform::new().await;
    *platform.api.parts.trust.lock().unwrap() =
        Some(Ok(JoinTrust { trust: Trust::Authority("ab".repeat(32)), pin: Some(STANDARD.encode([7; 32])) }));
    let ran = platform.run(&platform.line("kbj1_abc"), &[]).await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(said(&ran).contains("is not the platform: its key is another"), "{}", said(&ran));
    *platform.api.parts.trust.lock().unwrap() = Some(Ok(JoinTrust { trust: Trust::System, pin: None }));
    let ran = platform.run(&platform.line("kbj1_abc"), &[]).await;
    assert!(said(&ran).contains("is not trusted here"), "{}", said(&ran));
    assert_eq!(platform.left(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn what_a_machine_lacks_is_told_before_anything_is_fetched() {
    let platform = Platform::new().await;
    let line = platform.line("kbj1_abc");
    let refused = async |words: &str| {
        let ran = platform.run(&line, &[]).await;
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        assert!(said(&ran).contains(words) && !said(&ran).contains("fetching"), "{}", said(&ran));
    };
    for (name, body, words) in [
        ("id", "echo 1000", "needs root: put sudo before sh"),
        ("uname", "echo Darwin", "nodes run Linux, and this is Darwin"),
        ("uname", "case $1 in -s) echo Linux ;; *) echo riscv64 ;; esac", "machines of the kind riscv64"),
    ] {
        platform.program(name, body);
        refused(words).await;
        std::fs::remove_file(platform.bin().join(name)).unwrap();
        platform.program("id", "echo 0");
    }
    let other = if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" };
    platform.program("uname", &format!("case $1 in -s) echo Linux ;; *) echo {other} ;; esac"));
    refused("the platform has no kubebyon for").await;
    let ran = platform.run(&platform.line(""), &[]).await;
    assert!(said(&ran).contains("a token is needed"), "{}", said(&ran));
}

#[tokio::test]
async fn a_download_that_breaks_off_goes_on_and_another_content_is_refused() {
    let platform = Platform::new().await;
    // The first time a part comes, the second time the server is away.
    let count = platform.machine.path().join("count");
    platform.program("sleep", ":");
    let real = which("curl");
    platform.program(
        "curl",
        &format!(
            "case \"$*\" in */assets/*) ;; *) exec {real} \"$@\" ;; esac\necho x >>{count}\n\
             case $(wc -l <{count}) in\n\
             1) prev=; for a; do [ \"$prev\" = --output ] && printf '%s' '#!/bin/sh' >\"$a\"; prev=$a; done; exit 18 ;;\n2) exit 7 ;;\nesac\nexec {real} \"$@\"",
            real = real.display(),
            count = count.display()
        ),
    );
    let ran = platform.run(&platform.line("kbj1_abc"), &[]).await;
    assert!(out(&ran).contains("called: join kbj1_abc"), "{}{}", out(&ran), said(&ran));
    assert_eq!(said(&ran).matches("going on in").count(), 2, "{}", said(&ran));
    std::fs::remove_file(platform.bin().join("curl")).unwrap();
    let script = platform.api.get("/join.sh").header("host", "localhost").send().await.expect(StatusCode::OK).text;
    let sum = hex::encode(Sha256::digest(KUBEBYON));
    let file = platform.machine.path().join("join.sh");
    std::fs::write(&file, script.replace(&sum, &"0".repeat(64))).unwrap();
    let ran = platform.run(&format!("sh {} kbj1_abc", file.display()), &[]).await;
    assert!(said(&ran).contains("is not the kubebyon that the platform promised") && out(&ran).is_empty(), "{}", said(&ran));
    assert_eq!(platform.left(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn the_script_is_served_under_the_platforms_names_alone_and_names_none_that_a_client_sent() {
    let api = Api::new().await;
    for host in ["203.0.113.7:8443", "LOCALHOST", "localhost.", "[fd00::7]:8443"] {
        let reply = api.get("/join.sh").header("host", host).send().await.expect(StatusCode::OK);
        assert!(reply.text.contains("server='https://203.0.113.7:8443'\n"), "{}", reply.text);
        assert!(reply.headers["content-type"].to_str().unwrap().starts_with("text/x-shellscript"));
    }
    for host in ["evil.example", "", "localhost.evil.example"] {
        let reply = api.get("/join.sh").header("host", host).send().await.expect(StatusCode::NOT_FOUND).problem("not-found");
        assert!(reply.json["detail"].as_str().unwrap().contains("join-token create"));
    }
    api.get("/join.sh").send().await.problem("not-found");
    api.get("https://203.0.113.7/join.sh").send().await.expect(StatusCode::OK);
}

fn which(name: &str) -> PathBuf {
    let folders = ["/usr/local/bin", "/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
    folders.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name} is needed for this test: see scripts/prerequisites.sh"))
}
