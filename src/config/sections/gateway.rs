//! `public_access.*`, `gateway_api.*`, `managed_ingress.*` and `platform.*`: what the chart hands on, its names in snake_case.
//! Imports nothing of ours beside the section.

use crate::config::section::section;
use crate::domain::{Invalid, access};

/// What carries public traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The built-in front door, by the name that Helm charts call it.
    #[default]
    Haproxy,
    /// Gateways of the host cluster.
    Gatewayapi,
}

section! {
    /// What carries public traffic.
    pub struct PublicAccess {
        /// `haproxy` (the built-in front door; charts call it by that name, no HAProxy is needed) or `gatewayapi` (Gateways of the host
        /// cluster).
        provider: Provider = Provider::Haproxy,
    }
}

/// Whether the roles share a GatewayClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressMode {
    /// Every role takes the class `shared`.
    Single,
    /// Control planes and platform take `edge`, workloads `workload`.
    #[default]
    Dual,
}

/// Which address of a host node a workload's back end takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeAddressType {
    /// The internal one.
    #[default]
    Internal,
    /// The external one.
    External,
}

/// Who sets the routes to pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodRouteMode {
    /// Nobody.
    #[default]
    None,
    /// The route agent.
    Routeagent,
}

section! {
    /// GatewayClasses by purpose; an empty one falls back to `gateway_class_name`.
    pub struct GatewayClassProfiles {
        /// For every role where `address_mode` is `single`.
        shared: String = String::new(),
        /// For control planes and the platform where it is `dual`.
        edge: String = String::new(),
        /// For workloads where it is `dual`.
        workload: String = String::new(),
    }
}

section! {
    /// The Gateway of the platform's own names.
    pub struct PlatformGateway {
        /// Whether there is one.
        enabled: bool = false,
        /// The platform's public name.
        hostname: String = String::new(),
        /// The Secret with the certificate.
        tls_secret_name: String = String::new(),
        /// Whether plain HTTP is sent on to HTTPS.
        http_to_https_redirect: bool = false,
        /// The GatewayClass, before any profile.
        gateway_class_name: String = String::new(),
        /// The namespace of the Gateway.
        namespace: String = String::new(),
        /// The name of the Gateway.
        name: String = String::new(),
        /// The name of the listener.
        listener_name: String = String::new(),
    }
}

section! {
    /// TLS of the workload Gateway.
    pub struct WorkloadTls {
        /// Whether there is an HTTPS listener.
        enabled: bool = false,
    }
}

section! {
    /// Certificates of names that tenants bring.
    pub struct SelfManagedCertificates {
        /// Whether each such name gets a Certificate of its own.
        enabled: bool = false,
    }
}

section! {
    /// Certificates by cert-manager.
    pub struct CertManager {
        /// Whether Certificates are made.
        enabled: bool = false,
        sections {
            /// Certificates of names that tenants bring.
            self_managed: SelfManagedCertificates,
        }
    }
}

section! {
    /// Routes from the Gateway to pods.
    pub struct PodCidrRoute {
        /// `none` or `routeagent`.
        mode: PodRouteMode = PodRouteMode::None,
    }
}

section! {
    /// The Gateway of tenants' applications.
    pub struct WorkloadGateway {
        /// Whether there is one.
        enabled: bool = false,
        /// The GatewayClass, before any profile.
        gateway_class_name: String = String::new(),
        /// The namespace of the Gateway.
        namespace: String = String::new(),
        /// The name of the Gateway.
        name: String = String::new(),
        /// The name of the listener.
        listener_name: String = String::new(),
        /// The address of a host node that back ends take: `internal` or `external`.
        node_address_type: NodeAddressType = NodeAddressType::Internal,
        sections {
            /// TLS of the Gateway.
            tls: WorkloadTls,
            /// Certificates by cert-manager.
            cert_manager: CertManager,
            /// Routes from the Gateway to pods.
            pod_cidr_route: PodCidrRoute,
        }
    }
}

section! {
    /// Public access by Gateways of the host cluster.
    pub struct GatewayApi {
        /// `single` or `dual`: which profile gives a role its GatewayClass.
        address_mode: AddressMode = AddressMode::Dual,
        /// The GatewayClass where no profile names one.
        gateway_class_name: String = String::new(),
        /// The namespace of the control planes' Gateway.
        namespace: String = String::new(),
        /// The name of the control planes' Gateway.
        name: String = String::new(),
        /// The listener of control planes.
        listener_name: String = "control-plane".into(),
        /// Seconds between two full passes.
        sync_interval_seconds: u32 = 10,
        sections {
            /// GatewayClasses by purpose.
            gateway_class_profiles: GatewayClassProfiles,
            /// The Gateway of the platform's own names.
            platform: PlatformGateway,
            /// The Gateway of tenants' applications.
            workload: WorkloadGateway,
        }
    }
}

impl GatewayApi {
    /// The interval is sane, and the platform's Gateway has a name where it is on.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        if !(1..=3600).contains(&self.sync_interval_seconds) {
            problems.push(Invalid::new("gateway_api.sync_interval_seconds", "it must be from 1 to 3600 seconds"));
        }
        if self.platform.enabled || !self.platform.hostname.is_empty() {
            problems.extend(access::validate_host("gateway_api.platform.hostname", &self.platform.hostname).err());
        }
    }
}

section! {
    /// The ingress controller's chart; the controller is ingress-nginx.
    pub struct IngressChart {
        /// The chart's repository.
        repository: String = "https://kubernetes.github.io/ingress-nginx".into(),
        /// The chart's name.
        name: String = "ingress-nginx".into(),
        /// The chart's version; empty: the newest.
        version: String = String::new(),
    }
}

section! {
    /// The ingress controller that the platform installs in tenants' clusters.
    pub struct ManagedIngress {
        sections {
            /// Which chart is installed.
            chart: IngressChart,
        }
    }
}

section! {
    /// How the operator's access to vCluster Platform reaches clusters.
    pub struct PlatformBootstrap {
        /// Whether the access key is copied to each cluster's namespace.
        enabled: bool = false,
        /// The platform's URL.
        host: String = String::new(),
        /// Another name of `host`, by which charts call it; give one of the two.
        mock_host: String = String::new(),
        /// Whether the platform's certificate goes unchecked.
        insecure: bool = false,
        /// The platform's project.
        project: String = "default".into(),
    }
}

section! {
    /// The operator's own access to vCluster Platform.
    pub struct Platform {
        /// The namespace of the Secret with the access key.
        api_key_source_namespace: String = "kubebyon-system".into(),
        /// The name of the Secret with the access key.
        api_key_secret_name: String = "vcluster-platform-api-key".into(),
        sections {
            /// How it reaches clusters.
            bootstrap: PlatformBootstrap,
        }
    }
}

impl Platform {
    /// One name for the host, and a URL.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        let bootstrap = &self.bootstrap;
        if !bootstrap.host.is_empty() && !bootstrap.mock_host.is_empty() && bootstrap.host != bootstrap.mock_host {
            problems.push(Invalid::new(
                "platform.bootstrap.mock_host",
                "it is another name of platform.bootstrap.host; give only one of the two",
            ));
        }
        for (field, url) in [("platform.bootstrap.host", &bootstrap.host), ("platform.bootstrap.mock_host", &bootstrap.mock_host)] {
            if !url.is_empty() && !super::is_http_url(url) {
                problems.push(Invalid::new(field, format!("{url:?} is no URL; it looks like https://platform.example.com")));
            }
        }
    }
}
