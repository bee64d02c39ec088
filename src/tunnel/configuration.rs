//! The files by which a kube-apiserver finds the terminator: authorizers, egress selections, the webhook's kubeconfig.
//!
//! All are pure functions of their arguments. May import: `pki`.
use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{CLUSTER_SOCKET, CONTROL_PLANE_SOCKET, CREDENTIAL_ID};
use crate::pki::{files, kubeconfig, leaves::REVOCATION_HOST};

/// The most characters in one match condition: CEL's parser takes 100,000 (`cel-go`, `expressionSizeCodePointLimit`).
/// That is some 1,150 certificates; more of them get further authorizers, of which Kubernetes counts none.
const MAX_EXPRESSION: usize = 90_000;

/// The YAML of an `AuthorizationConfiguration` (KEP-3221): the revocation webhook, then Node, then RBAC.
///
/// The webhook is asked only about credentials in `revoked`: everybody else is judged without it, and neither slowed nor
/// stopped when the terminator is away (then a revoked credential gets 500). With nothing revoked the one match condition is
/// `false`, since a webhook without conditions is asked about everybody. Give only credentials that are still valid.
///
/// The webhook never allows; what it has no opinion on may be cached for a second, hence the terminator must know of a
/// revocation before this file does.
pub fn authorization_config(revoked: &BTreeSet<String>, kubeconfig_path: &str) -> String {
    let mut authorizers: Vec<Value> = expressions(revoked)
        .into_iter()
        .enumerate()
        .map(|(at, expression)| {
            let name = if at == 0 { "revocation".to_owned() } else { format!("revocation-{}", at + 1) };
            webhook(&name, &expression, kubeconfig_path)
        })
        .collect();
    authorizers.push(json!({"type": "Node", "name": "node"}));
    authorizers.push(json!({"type": "RBAC", "name": "rbac"}));
    yaml(&json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers}))
}

/// The hash by which kube-apiserver tells which configuration it has: once its metric
/// `apiserver_authorization_config_controller_last_config_info` carries it as the label `hash`, the file is in force. (Replaced
/// by a rename, a file is seen within milliseconds through inotify; without inotify within a minute.)
pub fn authorization_config_hash(config: &str) -> String {
    use sha2::Digest as _;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(config)))
}

/// The YAML of the `EgressSelectorConfiguration`: both `cluster` and `controlplane` lead into the run directory's sockets.
/// (etcd is dialled directly: its selection is not named.)
pub fn egress_selector_config(run_dir: &str) -> String {
    let selection = |name: &str, socket: &str| {
        json!({
            "name": name,
            "connection": {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": format!("{run_dir}/{socket}")}}},
        })
    };
    yaml(&json!({
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [selection("cluster", CLUSTER_SOCKET), selection("controlplane", CONTROL_PLANE_SOCKET)],
    }))
}

/// The kubeconfig by which the API server calls the revocation webhook.
pub fn webhook_kubeconfig(run_dir: &str) -> String {
    let path = |file: &str| format!("{run_dir}/{file}");
    kubeconfig::by_path(
        "revocation",
        &format!("https://{REVOCATION_HOST}:443/"),
        &path(files::TERMINATOR_CA),
        &path(files::API_SERVER_TERMINATOR_CLIENT_CERT),
        &path(files::API_SERVER_TERMINATOR_CLIENT_KEY),
    )
}

fn webhook(name: &str, expression: &str, kubeconfig_path: &str) -> Value {
    json!({
        "type": "Webhook",
        "name": name,
        "webhook": {
            "timeout": "3s",
            "authorizedTTL": "1s",
            "unauthorizedTTL": "1s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "Deny",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig_path},
            "matchConditions": [{"expression": expression}],
        },
    })
}

/// One expression for as many credentials as fit into it. Each tests that `extra` and its key exist before it looks: an error
/// under `failurePolicy: Deny` would refuse everybody.
fn expressions(revoked: &BTreeSet<String>) -> Vec<String> {
    let mut lists: Vec<String> = Vec::new();
    for literal in revoked.iter().map(|id| literal(id)) {
        match lists.last_mut() {
            Some(list) if list.len() + literal.len() < MAX_EXPRESSION => {
                list.push(',');
                list.push_str(&literal);
            }
            _ => lists.push(literal),
        }
    }
    if lists.is_empty() {
        return vec!["false".to_owned()];
    }
    let key = literal(CREDENTIAL_ID);
    lists
        .into_iter()
        .map(|list| format!("has(request.extra) && {key} in request.extra && request.extra[{key}].exists(id, id in [{list}])"))
        .collect()
}

/// A CEL string: what is not plainly harmless is escaped.
fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || "=-_.:/+".contains(character) {
            quoted.push(character);
        } else {
            write!(quoted, "\\U{:08x}", u32::from(character)).expect("writing to a String cannot fail");
        }
    }
    quoted.push('\'');
    quoted
}

fn yaml(value: &Value) -> String {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).expect("a tree of plain values can always be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revoked(count: usize) -> BTreeSet<String> {
        (0..count).map(|at| format!("X509SHA256={at:064x}")).collect()
    }

    fn conditions(config: &str) -> Vec<String> {
        let config: Value = serde_saphyr::from_str(config).unwrap();
        let authorizers = config["authorizers"].as_array().unwrap();
        let names: Vec<&str> = authorizers.iter().map(|authorizer| authorizer["name"].as_str().unwrap()).collect();
        assert_eq!(names[0], "revocation");
        assert_eq!(names[names.len() - 2..], ["node", "rbac"]);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        authorizers[..authorizers.len() - 2]
            .iter()
            .map(|authorizer| {
                assert_eq!(authorizer["webhook"]["failurePolicy"], "Deny");
                let conditions = authorizer["webhook"]["matchConditions"].as_array().unwrap();
                assert_eq!(conditions.len(), 1, "conditions are all to hold, so a list cannot be spread over them");
                conditions[0]["expression"].as_str().unwrap().to_owned()
            })
            .collect()
    }

    #[test]
    fn with_nothing_revoked_nobody_is_asked_about() {
        insta::assert_snapshot!(authorization_config(&BTreeSet::new(), "/run/kubebyon/x/revocation.kubeconfig"), @r#"
        apiVersion: apiserver.config.k8s.io/v1
        authorizers:
        - name: revocation
          type: Webhook
          webhook:
            authorizedTTL: 1s
            connectionInfo:
              kubeConfigFile: /run/kubebyon/x/revocation.kubeconfig
              type: KubeConfigFile
            failurePolicy: Deny
            matchConditionSubjectAccessReviewVersion: v1
            matchConditions:
            - expression: "false"
            subjectAccessReviewVersion: v1
            timeout: 3s
            unauthorizedTTL: 1s
        - name: node
          type: Node
        - name: rbac
          type: RBAC
        kind: AuthorizationConfiguration
        "#);
    }

    #[test]
    fn a_revoked_credential_is_looked_for_where_it_may_be_absent() {
        let conditions = conditions(&authorization_config(&BTreeSet::from(["JTI=a-1".to_owned(), "X509SHA256=ff".to_owned()]), "/k"));
        assert_eq!(
            conditions,
            ["has(request.extra) && 'authentication.kubernetes.io/credential-id' in request.extra && \
              request.extra['authentication.kubernetes.io/credential-id'].exists(id, id in ['JTI=a-1','X509SHA256=ff'])"]
        );
    }

    #[test]
    fn thousands_are_spread_over_authorizers_and_none_is_lost() {
        let ids = revoked(5000);
        let conditions = conditions(&authorization_config(&ids, "/k"));
        assert_eq!(conditions.len(), 5);
        for condition in &conditions {
            assert!(condition.len() < 100_000);
        }
        let all = conditions.concat();
        assert!(ids.iter().all(|id| all.contains(&format!("'{id}'"))));
    }

    #[test]
    fn an_odd_id_stays_within_its_quotes() {
        assert_eq!(
            literal("a'] || true || '"),
            "'a\\U00000027\\U0000005d\\U00000020\\U0000007c\\U0000007c\\U00000020true\\U00000020\\U0000007c\\U0000007c\\U00000020\\U00000027'"
        );
    }

    #[test]
    fn both_selections_lead_into_sockets() {
        insta::assert_snapshot!(egress_selector_config("/run/kubebyon/x"), @r"
        apiVersion: apiserver.k8s.io/v1beta1
        egressSelections:
        - connection:
            proxyProtocol: HTTPConnect
            transport:
              uds:
                udsName: /run/kubebyon/x/cluster.sock
          name: cluster
        - connection:
            proxyProtocol: HTTPConnect
            transport:
              uds:
                udsName: /run/kubebyon/x/controlplane.sock
          name: controlplane
        kind: EgressSelectorConfiguration
        ");
    }

    #[test]
    fn the_webhook_is_called_by_mutual_tls() {
        let config: Value = serde_saphyr::from_str(&webhook_kubeconfig("/r")).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://revocation.invalid:443/");
        assert_eq!(config["clusters"][0]["cluster"]["certificate-authority"], "/r/pki/terminator-ca.crt");
        assert_eq!(config["users"][0]["user"]["client-key"], "/r/pki/apiserver-terminator-client.key");
    }
}
