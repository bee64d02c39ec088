use super::*;

/// Loads with a file of `yaml`, an environment and flags; problems are shown with the file as `kubebyon.yaml`.
fn load(yaml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubebyon.yaml");
    std::fs::write(&path, yaml).unwrap();
    let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let options = LoadOptions { file: Some(path), environment: owned(environment), flags: owned(flags) };
    Config::load(&options).map_err(|errors| errors.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

/// A snapshot of messages, without the input that the test holds anyway.
macro_rules! snapshot {
    ($text:expr) => {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, { insta::assert_snapshot!($text) })
    };
}

fn problems(yaml: &str) -> String {
    load(yaml, &[], &[]).unwrap_err()
}

#[test]
fn nothing_given_is_the_defaults() {
    for yaml in ["", "# nothing\n", "---\n", "log:\n", "log:\n  level:\n", "~"] {
        let loaded = load(yaml, &[], &[]).unwrap();
        assert_eq!(loaded.config, Config::default(), "{yaml:?}");
        assert_eq!(loaded.origins.iter().count(), 0, "{yaml:?}");
    }
    assert_eq!(Config::default().roles, [Role::Api, Role::Worker, Role::Agent]);
}

#[test]
fn later_layers_win_and_are_remembered() {
    let yaml = "listen: ':1'\nlog: {level: warn, format: json}\npublic_access_mode: domain\n";
    let environment = [("KUBEBYON_LISTEN", ":2"), ("KUBEBYON_LOG__LEVEL", "debug"), ("KUBEBYON_DATA_DIR", ""), ("HOME", "/root")];
    let loaded = load(yaml, &environment, &[("listen", ":3")]).unwrap();
    assert_eq!(loaded.config.listen, ListenAddress::any(3));
    assert_eq!((loaded.config.log.level.as_str(), loaded.config.log.format), ("debug", LogFormat::Json));
    assert_eq!(loaded.origins.of("listen"), Some(&Origin::Flag("--listen".into())));
    assert_eq!(loaded.origins.of("log.level"), Some(&Origin::Environment("KUBEBYON_LOG__LEVEL".into())));
    assert!(matches!(loaded.origins.of("public_access_mode"), Some(Origin::File { line: 3, column: 21, .. })));
    assert_eq!(loaded.origins.of("data_dir"), None, "an empty variable is none");
    assert_eq!(loaded.origins.of("log.keep"), None);
}

#[test]
fn the_client_s_variables_are_no_configuration() {
    let environment = [("KUBEBYON_SERVER", "x"), ("KUBEBYON_TOKEN", "y"), ("KUBEBYON_JOIN_TOKEN", "z"), ("KUBEBYONX", "w")];
    assert_eq!(load("", &environment, &[]).unwrap().config, Config::default());
}

#[test]
fn lists_come_as_words_or_as_yaml() {
    let roles = |text: &str| load("", &[("KUBEBYON_ROLES", text)], &[]).map(|loaded| loaded.config.roles);
    assert_eq!(roles("api, worker"), Ok(vec![Role::Api, Role::Worker]));
    assert_eq!(roles("[agent]"), Ok(vec![Role::Agent]));
    assert_eq!(load("", &[], &[("roles", "worker")]).unwrap().config.roles, [Role::Worker]);
    let message = load("", &[("KUBEBYON_CORS__ALLOWED_ORIGINS", "https://a.example:8443, b.example")], &[]).unwrap_err();
    assert!(message.contains("cors.allowed_origins[1]: \"b.example\" is no origin") && !message.contains("a.example"), "{message}");
}

#[test]
fn text_without_quotes_stays_text_where_text_belongs() {
    let config = load("platform_host: k8s.example\nassets: {dir: 2026}\nsession: {cookie_secure: false}\n", &[], &[]).unwrap().config;
    assert_eq!((config.assets_dir(), config.session.cookie_secure), ("2026".into(), false));
    let config = load("hosted:\n  images:\n    etcd: 3\n", &[("KUBEBYON_BASE_DOMAIN", "true")], &[]).unwrap().config;
    assert_eq!((config.hosted.images["etcd"].as_str(), config.base_domain()), ("3", "true"));
}

#[test]
fn unknown_keys_name_the_nearest() {
    let yaml = "platfrom_host: k.example\nlog:\n  levle: debug\nlogging: {level: info}\ngatewayAPI: {}\ncolour: red\n";
    let environment = [("KUBEBYON_DATABSE__DSN", "x"), ("KUBEBYON_PORT_443_TCP", "tcp://10.96.0.7:443"), ("KUBEBYON_LOG", "debug")];
    snapshot!(load(yaml, &environment, &[("lisen", ":1")]).unwrap_err());
}

#[test]
fn wrong_types_are_all_named() {
    snapshot!(problems(
        r#"
data_dir: [a, b]
roles: [api, wrker, api]
listen: localhost:443
http_listen: nowhere
advertise_address: https://kube.example.com
public_access_mode: both
nodeport_range: 32767-30000
kubernetes_version: 1.34
passthrough:
  - host: a.example
  - {host: b.example, to: 10.0.0.1, port: 3}
  - {host: c.example, to: "10.0.0.1:443"}
tls: yes
local:
  uid_range: 0-99
  address_range: loopback
session:
  cookie_secure: "true"
http: {trusted_proxies: [10.0.0.0/8, 10.0.0.0/33]}
dns: {resolvers: [dns.example]}
gateway_api:
  sync_interval_seconds: soon
limits:
  etcd_quota_bytes: 2 gigs
  audit_log_files: 300
  client_hello_timeout: 10
retention: {events: forever}
log: {format: xml}
vcluster: {values: "- a"}
"#
    ));
}

#[test]
fn what_cannot_be_together_is_named() {
    snapshot!(problems(
        r#"
data_dir: relative/path
listen: "[::]:443"
http_listen: "0.0.0.0:443"
platform_host: "http://kube.example.com"
base_domain: "*.clusters.example.com"
control_plane_host: a b
nodeport_range: 1-65535
tls: {cert: /nowhere/cert.pem}
queue: {transport: postgres}
rabbitmq: {url: "http://mq"}
database: {dsn: "mysql://db"}
kubernetes: {kubeconfig: /nowhere/config}
local: {address_range: 127.0.0.0/8}
routes: {protocol: 2, table: 255, pod_cidr_pool: 127.64.0.0/16}
hosted: {images: {kubelet: x}}
log: {level: loud}
cors: {allowed_origins: ["*", "https://a.example/path"]}
assets: {mirror: mirror.example.com}
platform: {bootstrap: {host: "https://a.example", mock_host: "https://b.example"}}
limits: {etcd_quota_bytes: 1Mi, cluster_memory_estimate_bytes: 4Gi, jobs_at_once: 0, drain_timeout: 2d, max_connections_per_source: 0}
"#
    ));
}

#[test]
fn names_belong_to_one() {
    let yaml = r#"
platform_host: kube.example.com
base_domain: clusters.example.com
workload_domain: clusters.example.com
passthrough:
  - {host: Kube.example.com, to: "10.0.0.1:443"}
  - {host: x.clusters.example.com, to: "10.0.0.1:443"}
  - {host: other.example.com, to: "10.0.0.1:443"}
  - {host: other.example.com, to: "10.0.0.1:443"}
  - {host: 10.0.0.1, to: "10.0.0.1:443"}
"#;
    snapshot!(problems(yaml));
}

#[test]
fn what_is_not_built_is_refused_rather_than_ignored() {
    snapshot!(problems(
        r#"
database: {dsn: "postgresql://u:p@db/k"}
queue: {transport: rabbitmq}
rabbitmq: {url: "amqp://mq"}
engine: {default: vcluster}
kubernetes: {config_mode: incluster}
public_access: {provider: gatewayapi}
metrics: {api_listen: ":9091", worker_listen: off}
proxy_protocol: {accept_from: [10.0.0.0/8], send: true}
http: {trusted_proxies: [10.0.0.0/8]}
dns: {resolvers: [192.0.2.53]}
cors: {allowed_origins: ["https://a.example"]}
access_log: {mode: sampled, keep: 1d}
"#
    ));
}

#[test]
fn hosts_of_egress_are_named_one_by_one() {
    let wrong = problems(r#"egress: {public_hosts: ["*.example.com", "a.example:x", "a.example:0", "a b", "https://a.example"]}"#);
    for index in 0..5 {
        assert!(wrong.contains(&format!("egress.public_hosts[{index}]")), "{index}: {wrong}");
    }
    let good = load(r#"egress: {public_hosts: [api.example.com, "api.example.com:8443", "198.51.100.77:443", 198.51.100.77]}"#, &[], &[]);
    assert_eq!(good.unwrap().config.egress.public_hosts.len(), 4);
}

#[test]
fn a_broken_file_has_its_line() {
    snapshot!(["log: [1", "a: 1\na: 2", "- a", "listen: ':1'\n\tlog: x", "log: {level: info}\n---\nlog: {}"].map(problems).join("\n"));
    let options = LoadOptions { file: Some("/nowhere/kubebyon.yaml".into()), ..LoadOptions::default() };
    let message = Config::load(&options).unwrap_err().to_string();
    assert_eq!(message, "/nowhere/kubebyon.yaml: there is no such file; give --config the right path, or leave it out");
}

#[test]
fn files_that_are_no_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, part) in [
        ("latin1", b"log:\n  level: caf\xe9\n".to_vec(), "line 2 holds bytes that are no UTF-8"),
        ("huge", vec![b'#'; (1 << 20) + 1], "more than 1 MiB"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let message = Config::load(&LoadOptions { file: Some(path), ..LoadOptions::default() }).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let message = Config::load(&LoadOptions { file: Some(folder.path().into()), ..LoadOptions::default() }).unwrap_err().to_string();
    assert!(message.contains("cannot be read"), "{message}");
}

#[test]
fn problems_of_variables_and_flags_name_them() {
    let message = load("", &[("KUBEBYON_LISTEN", "443"), ("KUBEBYON_ROLES", "api,node")], &[("data_dir", "x")]).unwrap_err();
    snapshot!(message);
}

#[test]
fn certificate_and_key_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let pair = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec!["kube.example.com".to_owned()]).unwrap();
        let (cert, key) = (folder.path().join(format!("{name}.crt")), folder.path().join(format!("{name}.key")));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (cert, key)
    };
    let ((cert, key), (other, _)) = (pair("a"), pair("b"));
    let check = |cert: &PathBuf, key: &PathBuf| load(&format!("tls: {{cert: {}, key: {}}}", cert.display(), key.display()), &[], &[]);
    assert!(check(&cert, &key).is_ok());
    assert!(check(&other, &key).unwrap_err().contains("does not belong to the certificate"));
    assert!(check(&key, &key).unwrap_err().contains("holds no certificate in PEM"));
    assert!(check(&cert, &cert).unwrap_err().contains("holds no private key in PEM"));
}

#[test]
fn what_is_printed_is_read_again_and_holds_no_password() {
    let printed = Config::default().to_yaml();
    assert_eq!(load(&printed, &[], &[]).unwrap().config, Config::default());
    let secret = Config { rabbitmq: Rabbitmq { url: value::SecretUrl::new("amqp://u:s3cr3t@mq/x") }, ..Config::default() };
    assert!(secret.to_yaml().contains("amqp://u:***@mq/x") && !secret.to_yaml().contains("s3cr3t"));
}

#[test]
fn a_reload_says_what_it_changes() {
    let old = Config::default();
    let yaml = "log: {level: debug, format: json}\nlisten: ':8443'\nretention: {jobs: 1d}\nrabbitmq: {url: 'amqp://u:a@mq'}\n";
    let new = load(yaml, &[], &[]).unwrap().config;
    let diff = old.reload_diff(&new);
    assert_eq!(diff.applied, ["log.level"]);
    assert_eq!(diff.needs_restart, ["listen", "rabbitmq.url", "log.format", "retention.jobs"]);
    let in_effect = old.with_reloadable(&new);
    assert_eq!(in_effect.reload_diff(&new).applied, Vec::<&str>::new());
    assert_eq!(in_effect.reload_diff(&new).needs_restart, diff.needs_restart);
    let other_password = Config { rabbitmq: Rabbitmq { url: value::SecretUrl::new("amqp://u:b@mq") }, ..new.clone() };
    assert_eq!(new.reload_diff(&other_password).needs_restart, ["rabbitmq.url"]);
    assert!(reload::RELOADABLE.iter().all(|key| keys::find(key).is_some_and(|key| !key.is_section)));
}

#[test]
fn http_listens_once_the_platform_has_a_name() {
    let listen = |yaml: &str| load(yaml, &[], &[]).unwrap().config.http_listen();
    assert_eq!(listen(""), None);
    assert_eq!(listen("platform_host: k.example"), Some(ListenAddress::any(80)));
    assert_eq!(listen("platform_host: k.example\nhttp_listen: off"), None);
    assert_eq!(listen("http_listen: ':8080'"), Some(ListenAddress::any(8080)));
}

#[test]
fn the_reference_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, reference()).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept == reference(), "docs/configuration.md is out of date; run the test once with UPDATE_DOCS=1");
}

#[test]
fn every_key_of_the_types_is_declared() {
    fn leaves(node: &serde_json::Value, prefix: &str, into: &mut Vec<String>) {
        match node.as_object().filter(|map| !map.is_empty()) {
            Some(map) => map.iter().for_each(|(name, inner)| leaves(inner, &format!("{prefix}.{name}"), into)),
            None => into.push(prefix.trim_start_matches('.').to_owned()),
        }
    }
    let mut types = Vec::new();
    leaves(&serde_json::to_value(Config::default()).unwrap(), "", &mut types);
    let mut declared: Vec<_> = keys::ALL.iter().filter(|key| !key.is_section).map(|key| key.path.clone()).collect();
    declared.sort();
    types.sort();
    assert_eq!(types, declared);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn no_file_panics(text in "\\PC{0,80}") {
        let _ = load(&text, &[], &[]);
    }

    #[test]
    fn no_value_of_any_key_panics(index in 0usize..200, text in "\\PC{0,20}", nested in proptest::bool::ANY) {
        let key = &keys::ALL[index % keys::ALL.len()].path;
        let text = if nested { format!("[{{a: {text}}}]") } else { text };
        let _ = load("", &[(format!("KUBEBYON_{}", key.replace('.', "__").to_uppercase()).as_str(), &text)], &[]);
        let _ = load("", &[], &[(key, &text)]);
    }
}
