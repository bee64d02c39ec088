use std::collections::BTreeMap;

use super::*;
use crate::domain::cluster::{Addon, ClusterSpec, EngineKind, PublicAccessMode};
use crate::domain::{ClusterId, ClusterStatus, KubernetesVersion, ProjectId, Timestamp};

fn cluster(version: KubernetesVersion) -> Cluster {
    Cluster {
        id: ClusterId::from(uuid::Uuid::from_u128(1)),
        project_id: ProjectId::from(uuid::Uuid::from_u128(2)),
        project: "default".into(),
        name: "demo".into(),
        label: "demo-abc123".into(),
        labels: BTreeMap::new(),
        generation: 1,
        resource_version: 1,
        host: None,
        node_port: None,
        local: None,
        spec: ClusterSpec {
            kubernetes_version: version,
            engine: EngineKind::Local,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            cni: Addon::Default,
            kube_proxy: Addon::Default,
            api_local_address: "198.51.100.1".parse().unwrap(),
            public_access_mode: PublicAccessMode::Nodeport,
            control_plane_host: None,
        },
        status: ClusterStatus::default(),
        nodes: None,
        created_at: Timestamp::from_micros(0),
        deleted_at: None,
    }
}

fn layout() -> Layout {
    Layout { address: "127.64.9.9".parse().unwrap(), run_dir: "/run/kubebyon/1".into(), data_dir: "/var/lib/kubebyon/clusters/1".into() }
}

fn limits() -> Limits {
    Limits {
        etcd_quota_bytes: 2 << 30,
        max_requests_inflight: 200,
        max_mutating_requests_inflight: 100,
        audit_max_size_mb: 20,
        audit_max_files: 3,
    }
}

const VERSIONS: [KubernetesVersion; 2] = [KubernetesVersion::new(1, 34, 4), KubernetesVersion::new(1, 36, 3)];

fn plans() -> Vec<ControlPlane> {
    VERSIONS.map(|v| control_plane(&cluster(v), &layout(), &limits())).into()
}

/// The value of a flag, which must be given once at most.
fn flag<'a>(plan: &'a ControlPlane, program: &str, name: &str) -> Option<&'a str> {
    let program = plan.programs.iter().find(|p| p.name == program).expect("a program of the plan");
    let mut values = program.args.iter().filter_map(|a| a.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='));
    let value = values.next();
    assert_eq!(values.next(), None, "{name} is given twice");
    value
}

fn all_text(plan: &ControlPlane) -> String {
    let args = plan.programs.iter().flat_map(|p| p.args.iter().cloned());
    args.chain(plan.files.values().cloned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_plan_of_each_minor() {
    for (version, plan) in VERSIONS.iter().zip(plans()) {
        insta::assert_yaml_snapshot!(format!("control_plane_{}_{}", version.major, version.minor), plan);
    }
}

#[test]
fn starts_etcd_first_and_stops_it_last() {
    for plan in plans() {
        assert_eq!(plan.programs.iter().map(|p| p.name).collect::<Vec<_>>(), COMPONENTS);
    }
    let mut stop = STOP_ORDER;
    assert_eq!(stop[3], "etcd");
    stop.sort_unstable();
    assert_eq!(stop, COMPONENTS, "every program is stopped");
}

#[test]
fn listens_on_its_own_address_only() {
    for plan in plans() {
        let text = all_text(&plan);
        for everywhere in ["0.0.0.0", "[::]", "localhost", "127.0.0.1", "http://"] {
            assert!(!text.contains(everywhere), "{everywhere}");
        }
        for program in &COMPONENTS[1..] {
            assert_eq!(flag(&plan, program, "bind-address"), Some("127.64.9.9"), "{program}");
            assert_eq!(flag(&plan, program, "profiling"), Some("false"), "{program}");
            assert_eq!(flag(&plan, program, "tls-min-version"), Some("VersionTLS12"), "{program}");
            assert!(flag(&plan, program, "tls-private-key-file").is_some(), "{program} must not make a certificate of its own");
        }
        for name in ["listen-client-urls", "listen-peer-urls"] {
            assert!(flag(&plan, "etcd", name).unwrap().starts_with("https://127.64.9.9:"), "{name}");
        }
    }
}

#[test]
fn nobody_precedes_the_authorizers() {
    for plan in plans() {
        assert!(!all_text(&plan).contains("system:masters"));
        assert_eq!(flag(&plan, "kube-apiserver", "authorization-mode"), None);
        assert_eq!(flag(&plan, "kube-apiserver", "authorization-config"), Some("/run/kubebyon/1/authorization.yaml"));
        assert_eq!(flag(&plan, "kube-apiserver", "token-auth-file"), None);
        assert_eq!(flag(&plan, "kube-apiserver", "enable-bootstrap-token-auth"), None);
        assert_eq!(flag(&plan, "kube-apiserver", "enable-logs-handler"), Some("false"));
    }
}

#[test]
fn anonymous_callers_reach_health_alone() {
    for plan in plans() {
        assert_eq!(flag(&plan, "kube-apiserver", "anonymous-auth"), None, "it excludes the configuration's conditions");
        let config: serde_json::Value = serde_saphyr::from_str(&plan.files["authentication.yaml"]).unwrap();
        let paths: Vec<_> = config["anonymous"]["conditions"].as_array().unwrap().iter().map(|c| c["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/livez", "/readyz", "/healthz"]);
        assert_eq!(config["jwt"], serde_json::Value::Null);
    }
}

#[test]
fn etcd_asks_everybody_for_a_certificate() {
    for plan in plans() {
        for name in ["client-cert-auth", "peer-client-cert-auth"] {
            assert_eq!(flag(&plan, "etcd", name), Some("true"));
        }
        for name in ["trusted-ca-file", "peer-trusted-ca-file"] {
            assert_eq!(flag(&plan, "etcd", name), Some("/run/kubebyon/1/pki/etcd-ca.crt"));
        }
        assert_eq!(flag(&plan, "kube-apiserver", "etcd-servers"), Some("https://127.64.9.9:2379"));
        assert_eq!(flag(&plan, "etcd", "unsafe-no-fsync"), None);
    }
}

#[test]
fn the_api_server_dials_through_the_tunnel_by_address() {
    for plan in plans() {
        assert_eq!(flag(&plan, "kube-apiserver", "egress-selector-config-file"), Some("/run/kubebyon/1/egress.yaml"));
        assert_eq!(flag(&plan, "kube-apiserver", "kubelet-preferred-address-types"), Some("InternalIP"));
        assert_eq!(flag(&plan, "kube-apiserver", "enable-aggregator-routing"), Some("true"));
        assert_eq!(flag(&plan, "kube-apiserver", "requestheader-allowed-names"), Some("front-proxy-client"));
        assert_eq!(flag(&plan, "kube-apiserver", "kubelet-certificate-authority"), Some("/run/kubebyon/1/pki/kubelet-serving-ca.crt"));
    }
}

#[test]
fn the_controller_manager_signs_for_kubelet_serving_alone() {
    for plan in plans() {
        let program = &plan.programs[2];
        let signers: Vec<_> = program.args.iter().filter(|a| a.contains("signing-") && a.contains("-file=")).collect();
        assert_eq!(signers.len(), 2);
        assert!(signers.iter().all(|a| a.starts_with("--cluster-signing-kubelet-serving-")), "{signers:?}");
        assert!(!program.args.iter().any(|a| a.contains("client-ca.key") || a.contains("server-ca.key")));
        let controllers = flag(&plan, "kube-controller-manager", "controllers").unwrap();
        assert!(controllers.contains("-certificatesigningrequest-approving-controller"));
    }
}

#[test]
fn node_ranges_are_allotted_for_the_platforms_network_alone() {
    let mut spec = cluster(VERSIONS[0]);
    assert_eq!(flag(&control_plane(&spec, &layout(), &limits()), COMPONENTS[2], "cluster-cidr"), Some("10.244.0.0/16"));
    spec.spec.cni = Addon::None;
    let plan = control_plane(&spec, &layout(), &limits());
    assert_eq!(flag(&plan, COMPONENTS[2], "cluster-cidr"), None);
    assert_eq!(flag(&plan, COMPONENTS[2], "allocate-node-cidrs"), Some("false"));
}

#[test]
fn audit_logs_are_bounded_whatever_the_limits_say() {
    for (files, kept) in [(0, "1"), (1, "1"), (2, "1"), (5, "4")] {
        let limits = Limits { audit_max_files: files, audit_max_size_mb: 0, ..limits() };
        let plan = control_plane(&cluster(VERSIONS[0]), &layout(), &limits);
        assert_eq!(flag(&plan, "kube-apiserver", "audit-log-maxbackup"), Some(kept));
        assert_eq!(flag(&plan, "kube-apiserver", "audit-log-maxsize"), Some("1"));
    }
}

#[test]
fn audit_records_hold_no_bodies() {
    let policy: serde_json::Value = serde_saphyr::from_str(files::AUDIT_POLICY).unwrap();
    let levels: Vec<_> = policy["rules"].as_array().unwrap().iter().map(|r| r["level"].as_str().unwrap()).collect();
    assert_eq!(levels.last(), Some(&"Metadata"));
    assert!(levels.iter().all(|l| matches!(*l, "None" | "Metadata")), "{levels:?}");
    assert!(policy["rules"].as_array().unwrap().last().unwrap().as_object().unwrap().len() == 1, "the last rule is for everything");
}

#[test]
fn files_are_well_formed_and_paths_survive_quoting() {
    let mut layout = layout();
    layout.run_dir = "/run/with blank: and \"quotes\"".into();
    for (name, text) in control_plane(&cluster(VERSIONS[1]), &layout, &limits()).files {
        let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(value["kind"].is_string(), "{name}");
        if name == "scheduler.kubeconfig" {
            assert_eq!(value["users"][0]["user"]["client-key"], "/run/with blank: and \"quotes\"/pki/scheduler.key");
        }
    }
    let encryption: serde_json::Value = serde_saphyr::from_str(&files::encryption("AAAA")).unwrap();
    assert_eq!(encryption["resources"][0]["providers"].as_array().unwrap().len(), 1, "nothing is written or read as plain text");
}

#[test]
fn environments_are_whole_and_hold_no_memory_limit() {
    for plan in plans() {
        for program in plan.programs {
            assert_eq!(program.env.keys().collect::<Vec<_>>(), ["GOGC"], "{}", program.name);
        }
    }
}

#[test]
fn ipv6_addresses_get_brackets() {
    let layout = Layout { address: "fd00::9".parse().unwrap(), ..layout() };
    let plan = control_plane(&cluster(VERSIONS[0]), &layout, &limits());
    assert_eq!(flag(&plan, "kube-apiserver", "etcd-servers"), Some("https://[fd00::9]:2379"));
    assert_eq!(flag(&plan, "kube-apiserver", "bind-address"), Some("fd00::9"));
}
