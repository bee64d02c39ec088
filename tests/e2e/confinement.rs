//! What a cluster's uid can do on the host: reach its own endpoints, and nothing else.

use crate::harness::{Platform, kubectl_ok, run};

fn uid_of(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// Whether a process of that uid can open a TCP connection.
fn connects(uid: &str, address: &str, port: u16) -> bool {
    let script = format!("exec 3<>/dev/tcp/{address}/{port}");
    run("setpriv", &["--reuid", uid, "--regid", uid, "--clear-groups", "timeout", "3", "bash", "-c", &script]).status.success()
}

fn address_of(pid: i32) -> String {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let arguments = String::from_utf8_lossy(&command).replace('\0', "\n");
    arguments.lines().find_map(|a| a.strip_prefix("--bind-address=")).expect("the API server is bound to an address").to_owned()
}

#[test]
fn a_clusters_uid_connects_to_nothing_but_its_own_endpoints() {
    let platform = Platform::start();
    let one = platform.create("one", &[]);
    let own: Vec<(String, i32)> = platform.children();
    let own_api = own.iter().find(|(name, _)| name == "kube-apiserver").unwrap().1;
    let (uid, address) = (uid_of(own_api), address_of(own_api));
    platform.create("two", &[]);
    let other_api = platform.children().into_iter().find(|(name, pid)| name == "kube-apiserver" && *pid != own_api).unwrap().1;
    let other_address = address_of(other_api);
    assert_ne!(uid, uid_of(other_api), "each cluster has a uid of its own");
    assert_ne!(address, other_address);

    assert!(connects(&uid, &address, 6443) && connects(&uid, &address, 2379), "its own endpoints");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap().port();
    assert!(connects("0", "127.0.0.1", open), "the probe works at all");
    assert!(!connects(&uid, "127.0.0.1", open), "another listener of the host");
    assert!(!connects(&uid, &other_address, 6443), "another cluster's API server");
    assert!(!connects(&uid, &other_address, 2379), "another cluster's etcd");
    assert!(!connects(&uid, "127.0.0.1", platform.port), "the front door");
    assert!(!connects("65534", &address, 2379), "nobody else reaches its etcd");

    // Datagrams: a DNS question of that uid does not arrive.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    let port = socket.local_addr().unwrap().port();
    let send = |uid: &str| {
        let script = format!("echo -n x > /dev/udp/127.0.0.1/{port}");
        run("setpriv", &["--reuid", uid, "--regid", uid, "--clear-groups", "bash", "-c", &script]);
        socket.recv(&mut [0u8; 8]).is_ok()
    };
    assert!(send("0"), "the probe works at all");
    assert!(!send(&uid), "no datagram leaves that uid");

    // Keys are not for other tenants' uids.
    let id = one["id"].as_str().unwrap();
    let other_uid = uid_of(other_api);
    let read = run("setpriv", &["--reuid", &other_uid, "--regid", &other_uid, "--clear-groups", "ls", &format!("/run/kubebyon/{id}")]);
    assert!(!read.status.success(), "another tenant's uid lists the keys: {}", String::from_utf8_lossy(&read.stdout));
}

#[test]
fn a_webhook_that_a_tenant_points_at_the_host_is_not_dialled() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    let admin = platform.kubeconfig("demo", &[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let manifest = format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: probe}}
webhooks:
- name: probe.example.com
  clientConfig: {{url: \"https://127.0.0.1:{port}/\"}}
  rules: [{{apiGroups: [\"\"], apiVersions: [\"v1\"], operations: [\"CREATE\"], resources: [\"configmaps\"]}}]
  admissionReviewVersions: [\"v1\"]
  sideEffects: None
  timeoutSeconds: 5
"
    );
    assert!(crate::harness::apply(&admin, &manifest).status.success());
    let said = crate::harness::eventually("the webhook is called in vain", || {
        let output = crate::harness::kubectl_with(&admin, &["create", "configmap", "x"]);
        if output.status.success() {
            kubectl_ok(&admin, &["delete", "configmap", "x"]);
            return None;
        }
        Some(String::from_utf8_lossy(&output.stderr).into_owned())
    });
    assert!(said.contains("probe.example.com"), "{said}");
    assert!(listener.accept().is_err(), "the platform host was dialled");
}

#[test]
fn secrets_are_encrypted_at_rest() {
    let platform = Platform::start();
    let cluster = platform.create("demo", &[]);
    let admin = platform.kubeconfig("demo", &[]);
    kubectl_ok(&admin, &["create", "secret", "generic", "plain", "--from-literal=key=correct-horse-battery-staple"]);
    kubectl_ok(&admin, &["create", "configmap", "plain", "--from-literal=key=this-is-not-a-secret-at-all"]);
    let etcd = platform.data_dir().join("clusters").join(cluster["id"].as_str().unwrap());
    let holds = |needle: &str| run("grep", &["-rqa", needle, etcd.to_str().unwrap()]).status.success();
    assert!(holds("this-is-not-a-secret-at-all"), "the search works at all");
    assert!(!holds("correct-horse-battery-staple"));
}
