//! The API holds what its OpenAPI file says, whatever is sent to it: schemathesis against the running daemon.

use crate::harness::{Platform, run, tail};

/// schemathesis in a virtual environment below the cache; `make test` installs it.
fn schemathesis() -> std::path::PathBuf {
    let cache = std::env::var_os("KUBEBYON_CACHE").map(std::path::PathBuf::from);
    let cache = cache.unwrap_or_else(|| std::path::PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/kubebyon"));
    let path = cache.join("schemathesis/bin/schemathesis");
    assert!(path.exists(), "{} is missing: `make test` installs it", path.display());
    path
}

#[test]
fn schemathesis_finds_no_server_error_and_no_broken_promise() {
    let platform = Platform::start();
    let token = platform.json(&["api-token", "create", "schemathesis", "--user", "admin", "--role", "admin"]);
    let secret = token["secret"].as_str().unwrap();
    let schema = platform.dir.path().join("openapi.json");
    std::fs::write(&schema, platform.ok(&["openapi"])).unwrap();
    let output = run(
        schemathesis().to_str().unwrap(),
        &[
            "run",
            schema.to_str().unwrap(),
            "--url",
            &format!("https://127.0.0.1:{}", platform.port),
            "--tls-verify=false",
            "-H",
            &format!("Authorization: Bearer {secret}"),
            "--max-examples=25",
            "--workers=2",
            "--exclude-path-regex=(events|logs)$",
            "--checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ],
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{}", tail(&said, 150), String::from_utf8_lossy(&output.stderr));
}
