//! Configuration files of a control plane's programs. None holds a key but [`encryption`].

use super::{Layout, ports};
use crate::pki::cluster::files as pki;

/// `AuthenticationConfiguration`: anonymous callers reach three exact paths and nothing else (KEP-4633).
pub const AUTHENTICATION: &str = "\
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
    - path: /livez
    - path: /readyz
    - path: /healthz
";

/// `AdmissionConfiguration`: events are limited, since a broken workload writes more of them than of anything else.
pub const ADMISSION: &str = "\
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: EventRateLimit
    configuration:
      apiVersion: eventratelimit.admission.k8s.io/v1alpha1
      kind: Configuration
      limits:
        - type: Server
          qps: 50
          burst: 500
        - type: Namespace
          qps: 20
          burst: 200
          cacheSize: 500
        - type: SourceAndObject
          qps: 5
          burst: 25
          cacheSize: 2000
";

/// The audit policy: who did what to which object, never what was in it; without what the control plane itself says all the time.
pub const AUDIT_POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
  - level: None
    nonResourceURLs: ["/livez*", "/readyz*", "/healthz*", "/metrics", "/version", "/openapi/*", "/api", "/apis", "/api/*", "/apis/*"]
  - level: None
    resources:
      - group: ""
        resources: [events]
      - group: events.k8s.io
        resources: [events]
  - level: None
    verbs: [get, list, watch, update, patch]
    resources:
      - group: coordination.k8s.io
        resources: [leases]
  - level: None
    resources:
      - group: authentication.k8s.io
        resources: [tokenreviews]
      - group: authorization.k8s.io
        resources: [subjectaccessreviews, selfsubjectaccessreviews, localsubjectaccessreviews, selfsubjectrulesreviews]
  - level: None
    users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]
    verbs: [get, list, watch]
  - level: None
    users: ["kubebyon:platform"]
    verbs: [get, list, watch]
    resources:
      - group: ""
        resources: [configmaps, namespaces, nodes, pods, "pods/log", serviceaccounts, services]
      - group: apps
        resources: [daemonsets]
      - group: certificates.k8s.io
        resources: [certificatesigningrequests]
      - group: rbac.authorization.k8s.io
        resources: [clusterroles, clusterrolebindings]
  - level: None
    userGroups: ["system:nodes", "system:serviceaccounts:kube-system"]
    verbs: [get, list, watch]
    resources:
      - group: ""
        resources: [nodes, "nodes/status", pods, services, endpoints, configmaps, namespaces, serviceaccounts]
      - group: discovery.k8s.io
        resources: [endpointslices]
  - level: None
    userGroups: ["system:nodes"]
    verbs: [update, patch]
    resources:
      - group: ""
        resources: ["nodes/status", "pods/status"]
  - level: Metadata
"#;

/// `EncryptionConfiguration`: Secrets lie in etcd under `key` (32 bytes, base64; XSalsa20-Poly1305). The result is secret.
pub fn encryption(key: &str) -> String {
    format!(
        "\
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - secretbox:
          keys:
            - name: key1
              secret: {key}
"
    )
}

/// A kubeconfig that names certificate, key and authority by path: client-go reads the certificate again when it is renewed.
pub(super) fn kubeconfig(layout: &Layout, user: &str, cert: &str, key: &str) -> String {
    let (server, ca) = (layout.url(ports::API_SERVER), layout.run(pki::SERVER_CA));
    let (cert, key) = (layout.run(cert), layout.run(key));
    // JSON strings are YAML strings: a path with a blank or a colon stays what it is.
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
  - name: default
    cluster:
      server: {}
      certificate-authority: {}
users:
  - name: {user}
    user:
      client-certificate: {}
      client-key: {}
contexts:
  - name: default
    context:
      cluster: default
      user: {user}
current-context: default
",
        quote(&server),
        quote(&ca),
        quote(&cert),
        quote(&key),
    )
}
