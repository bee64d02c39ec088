use super::*;

fn new(name: &str, credential: Credential) -> KubeconfigFile {
    KubeconfigFile {
        name: name.to_owned(),
        server: "https://demo.example:8443".to_owned(),
        tls_server_name: Some("demo-abc123.kubebyon.internal".to_owned()),
        ca_pem: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned(),
        namespace: Some("team".to_owned()),
        credential,
    }
}

fn token(name: &str) -> KubeconfigFile {
    new(name, Credential::Token("abc".to_owned()))
}

fn names(document: &Node, key: &str) -> Vec<String> {
    let Some(Node::List(items)) = document.get(key) else { panic!("{key} is a list") };
    items.iter().map(|item| item.get_text("name").unwrap().to_owned()).collect()
}

#[test]
fn a_fresh_file_reads_as_kubectl_expects_it() {
    let certificate = Credential::Certificate { cert_pem: "cert".repeat(200), key_pem: "key".to_owned() };
    let blob = base64::engine::general_purpose::STANDARD.encode("cert".repeat(200));
    insta::assert_snapshot!(new("default/demo", certificate).to_yaml().replace(&blob, "BASE64"), @r"
    apiVersion: v1
    kind: Config
    clusters:
    - name: default/demo
      cluster:
        server: https://demo.example:8443
        tls-server-name: demo-abc123.kubebyon.internal
        certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=
    users:
    - name: default/demo
      user:
        client-certificate-data: BASE64
        client-key-data: a2V5
    contexts:
    - name: default/demo
      context:
        cluster: default/demo
        user: default/demo
        namespace: team
    current-context: default/demo
    ");
}

#[test]
fn names_that_look_like_other_values_stay_text() {
    for name in ["true", "yes", "on", "null", "123", "1e3", "~", "0x10", "a: b", "- a", "#x", "2026-01-01"] {
        let document = yaml::read(&token(name).to_yaml()).unwrap();
        assert_eq!(document.get_text("current-context"), Some(name));
        assert_eq!(names(&document, "users"), [name]);
    }
}

#[test]
fn merging_keeps_everything_else_in_its_order() {
    let existing = r#"
# mine
kind: Config
preferences: {colors: true}
contexts:
- name: old
  context: {cluster: old, user: old, namespace: "123"}
current-context: old
users:
- name: old
  user:
    exec: {command: aws, args: ["eks", "get-token"], apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable}
- name: demo
  user: {token: stale}
- name: last
  user: {password: "yes", username: 'on'}
clusters:
- name: old
  cluster: {server: "https://old", insecure-skip-tls-verify: true}
extensions:
- name: mine
  extension: {anything: [1, -2, 1.5, null]}
apiVersion: v1
"#;
    let before = yaml::read(existing).unwrap();
    let after = yaml::read(&merge(existing, &token("demo").to_yaml()).unwrap()).unwrap();

    let Node::Map(entries) = &after else { panic!() };
    let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["kind", "preferences", "contexts", "current-context", "users", "clusters", "extensions", "apiVersion"]);
    assert_eq!(names(&after, "users"), ["old", "demo", "last"]);
    assert_eq!(names(&after, "contexts"), ["old", "demo"]);
    assert_eq!(names(&after, "clusters"), ["old", "demo"]);
    assert_eq!(after.get_text("current-context"), Some("demo"));
    for untouched in ["preferences", "extensions"] {
        assert_eq!(after.get(untouched), before.get(untouched));
    }
    let user = |document: &Node, at: usize| match document.get("users") {
        Some(Node::List(items)) => items[at].clone(),
        _ => panic!(),
    };
    assert_eq!(user(&after, 0), user(&before, 0));
    assert_eq!(user(&after, 2), user(&before, 2));
    assert_eq!(user(&after, 1).get("user").unwrap().get_text("token"), Some("abc"));
}

#[test]
fn merging_twice_changes_nothing_more() {
    let once = merge("", &token("demo").to_yaml()).unwrap();
    assert_eq!(once, token("demo").to_yaml());
    assert_eq!(merge(&once, &token("demo").to_yaml()).unwrap(), once);
}

#[test]
fn an_empty_list_or_null_takes_entries() {
    let merged = merge("apiVersion: v1\nkind: Config\nclusters: null\nusers: []\ncontexts:\n", &token("demo").to_yaml()).unwrap();
    let document = yaml::read(&merged).unwrap();
    for key in ["clusters", "users", "contexts"] {
        assert_eq!(names(&document, key), ["demo"]);
    }
}

#[test]
fn what_is_no_kubeconfig_is_refused() {
    for existing in ["just text", "[1, 2]", "kind: Pod\napiVersion: v1", "a: b", "kind: Config\nusers: {a: b}", "kind: [", "a: 1\na: 2"] {
        let refused = merge(existing, &token("demo").to_yaml()).unwrap_err().to_string();
        assert!(refused.contains("nothing was changed"), "{existing:?}: {refused}");
    }
    assert!(merge(&" ".repeat(MAX_KUBECONFIG_BYTES + 1), &token("demo").to_yaml()).is_err());
}

#[test]
fn a_file_of_many_contexts_is_read_whole() {
    let entries = |key: &str, value: &str| (0..500).map(|at| format!("- name: c{at}\n  {key}: {value}\n")).collect::<Vec<_>>().concat();
    let blob = "A".repeat(1200);
    let existing = format!(
        "kind: Config\nclusters:\n{}users:\n{}contexts:\n{}",
        entries("cluster", &format!("{{server: \"https://x\", certificate-authority-data: {blob}}}")),
        entries("user", &format!("{{client-key-data: {blob}}}")),
        entries("context", "{cluster: a, user: b}"),
    );
    let merged = merge(&existing, &token("demo").to_yaml()).unwrap();
    assert_eq!(names(&yaml::read(&merged).unwrap(), "contexts").len(), 501);
}

#[test]
fn programs_read_their_files_by_path() {
    let document = yaml::read(&by_path("kube-scheduler", "https://127.64.0.1:6443", "/r/ca.crt", "/r/s.crt", "/r/s.key")).unwrap();
    let Some(Node::List(clusters)) = document.get("clusters") else { panic!() };
    assert_eq!(clusters[0].get("cluster").unwrap().get_text("certificate-authority"), Some("/r/ca.crt"));
}
