//! Whether a control plane's programs are well, and if not, which check of which program fails.
//!
//! Guarantees: asks each program itself, over TLS under the cluster's own authorities, all four at once; an answer comes within
//! [`TIMEOUT`]. Health paths are open to anonymous callers, so only etcd needs a client certificate. May import: `domain`, `engine::plan`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::component_http::{self, Identity};
use super::plan::{COMPONENTS, ports};
use crate::domain::cluster::ComponentStatus;

/// How long a program has to answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// What a probe trusts and proves, all PEM.
#[derive(Debug, Clone, Copy)]
pub struct ProbeCredentials<'a> {
    /// Signs the serving certificates of API server, controller-manager and scheduler.
    pub server_ca: &'a str,
    /// Signs etcd's certificates.
    pub etcd_ca: &'a str,
    /// A client certificate of etcd's authority.
    pub etcd_client_cert: &'a str,
    /// Its key.
    pub etcd_client_key: &'a str,
}

/// Asks the programs of one control plane for their health. Make a new one when the certificates are renewed.
pub struct Probe {
    address: IpAddr,
    kubernetes: reqwest::Client,
    etcd: reqwest::Client,
}

/// What one program says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentHealth {
    /// Its name, one of [`COMPONENTS`].
    pub name: &'static str,
    /// Whether it answers that it is well.
    pub healthy: bool,
    /// Which check fails, or why there is no answer; empty when it is well.
    pub message: String,
}

impl ComponentHealth {
    /// With what its supervisor knows of the process.
    pub fn into_status(self, pid: Option<i32>, restarts: u32) -> ComponentStatus {
        ComponentStatus { name: self.name.to_owned(), healthy: self.healthy, pid, restarts, message: self.message }
    }
}

impl Probe {
    /// For the control plane at `address`.
    pub fn new(address: IpAddr, credentials: ProbeCredentials<'_>) -> anyhow::Result<Self> {
        let identity = Identity { cert_pem: credentials.etcd_client_cert, key_pem: credentials.etcd_client_key };
        Ok(Self {
            address,
            kubernetes: component_http::client(credentials.server_ca, None, TIMEOUT)?,
            etcd: component_http::client(credentials.etcd_ca, Some(identity), TIMEOUT)?,
        })
    }

    /// The health of every program, in the order of [`COMPONENTS`].
    pub async fn all(&self) -> [ComponentHealth; 4] {
        let [etcd, api_server, controller_manager, scheduler] = COMPONENTS;
        tokio::join!(self.component(etcd), self.component(api_server), self.component(controller_manager), self.component(scheduler)).into()
    }

    /// The health of one program of [`COMPONENTS`]; any other name counts as the API server.
    pub async fn component(&self, name: &'static str) -> ComponentHealth {
        let (client, port, path) = match name {
            // Unlike /health, /readyz stays well under a NOSPACE alarm, which is a condition of its own.
            "etcd" => (&self.etcd, ports::ETCD_CLIENT, "/readyz?verbose"),
            "kube-controller-manager" => (&self.kubernetes, ports::CONTROLLER_MANAGER, "/healthz?verbose"),
            "kube-scheduler" => (&self.kubernetes, ports::SCHEDULER, "/readyz?verbose"),
            _ => (&self.kubernetes, ports::API_SERVER, "/readyz?verbose"),
        };
        let url = format!("https://{}{path}", SocketAddr::new(self.address, port));
        let message = match client.get(&url).send().await {
            Err(error) => component_http::why(&error),
            Ok(response) => match component_http::text(response).await {
                Ok((200, _)) => String::new(),
                Ok((status, body)) => failing_checks(status, &body),
                Err(error) => format!("it did not answer properly ({error:#})"),
            },
        };
        ComponentHealth { name, healthy: message.is_empty(), message }
    }
}

/// What a verbose health answer complains of. Each check is a line, `[+]name ok` or `[-]name failed: reason`.
fn failing_checks(status: u16, body: &str) -> String {
    let failing: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .map(|line| line.trim().trim_end_matches(": reason withheld").trim_end_matches(" failed"))
        .collect();
    match failing.as_slice() {
        [] => format!("its health check answers {status}"),
        checks => format!("these checks fail: {}", checks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_checks_that_fail() {
        let body = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\nreadyz check failed\n";
        assert_eq!(failing_checks(500, body), "these checks fail: etcd, poststarthook/rbac/bootstrap-roles");
        let etcd = "[+]data_corruption ok\n[-]linearizable_read failed: etcdserver: no leader\n";
        assert_eq!(failing_checks(503, etcd), "these checks fail: linearizable_read failed: etcdserver: no leader");
        assert_eq!(failing_checks(401, "Unauthorized"), "its health check answers 401");
    }

    #[tokio::test]
    async fn says_of_a_program_that_is_not_there_that_it_is_not() {
        let identity = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        let (cert, key) = (identity.cert.pem(), identity.signing_key.serialize_pem());
        let credentials = ProbeCredentials { server_ca: &cert, etcd_ca: &cert, etcd_client_cert: &cert, etcd_client_key: &key };
        let probe = Probe::new("127.127.255.254".parse().unwrap(), credentials).unwrap();
        for (health, name) in probe.all().await.into_iter().zip(COMPONENTS) {
            assert_eq!(health.name, name);
            assert!(!health.healthy);
            assert!(health.message.contains("cannot be reached"), "{}", health.message);
        }
    }
}
