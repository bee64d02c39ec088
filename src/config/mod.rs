//! Configuration: one YAML file, the `KUBEBYON_` environment and flags, later wins; checked whole before anything is opened.
//!
//! [`Config::load`] reports every mistake at once, each with the file's line, the variable or the flag that it came from.
//! [`Loaded`] remembers where each key was given: such a key beats the setting of the same name.
//! The reference page `docs/configuration.md` is made from the declarations in `sections`. May import: `domain`.

mod check;
mod decode;
mod error;
mod keys;
mod layers;
mod print;
mod reload;
mod section;
mod sections;
mod unbuilt;
pub mod value;
mod yaml;

use std::path::PathBuf;

pub use error::{ConfigErrors, EXIT_CODE, Origin, Origins, Problem};
pub use print::reference;
pub use section::{Key, Section};
pub use sections::*;

use crate::domain::KubernetesVersion;
use crate::domain::access::DEFAULT_BASE_DOMAIN;
use crate::domain::cluster::PublicAccessMode;
use section::section;
use value::{HostPort, ListenAddress, Listener, PortRange};

/// The file that is read when none is named and it is there.
pub const DEFAULT_FILE: &str = "/etc/kubebyon/kubebyon.yaml";

/// What one process of the platform does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The front door and the API.
    Api,
    /// Jobs, signing and the local engine.
    Worker,
    /// The routes of this host.
    Agent,
}

section! {
    /// The configuration of a platform's process.
    pub struct Config {
        /// Where everything that must outlive a restart is kept.
        data_dir: PathBuf = "/var/lib/kubebyon".into(),
        /// What this process does: any of `api`, `worker`, `agent`.
        roles: Vec<Role> = vec![Role::Api, Role::Worker, Role::Agent],
        /// Where the front door listens.
        listen: ListenAddress = ListenAddress::any(443),
        /// Where plain HTTP is answered with a redirect, or `off`; absent: `:80` once `platform_host` is set, else off.
        http_listen: Listener = Listener::Unset,
        /// Host and port that URLs, certificates and join lines name, where clients reach the platform by another than `listen`.
        advertise_address: Option<HostPort> = None,
        /// The platform's own name, under which the API is reached.
        platform_host: Option<String> = None,
        /// Clusters are known as `<label>.<base_domain>`. Set it when DNS resolves `*.<base_domain>` to the front door; absent:
        /// `kubebyon.internal`, which no DNS knows.
        base_domain: Option<String> = None,
        /// How new clusters are reached: `nodeport` (a port of their own) or `domain` (their name on the shared port).
        public_access_mode: PublicAccessMode = PublicAccessMode::Nodeport,
        /// The host that kubeconfigs name in `nodeport` mode; absent: the host of `advertise_address`, else the address of the
        /// default route.
        control_plane_host: Option<String> = None,
        /// The ports of clusters in `nodeport` mode.
        nodeport_range: PortRange = PortRange { first: 30_000, last: 32_767 },
        /// Names of other servers on the shared port, `{host, to}`: their connections are handed on untouched.
        passthrough: Vec<Passthrough> = Vec::new(),
        /// The version of clusters that are created without one, such as `1.36.3`; absent: the newest that there are programs of.
        kubernetes_version: Option<KubernetesVersion> = None,
        /// Where plain HTTP is served behind a Gateway, such as `:8080`; off by default.
        internal_listen: Listener = Listener::Unset,
        /// Tenants' applications are known as `<label>.<workload_domain>`.
        workload_domain: Option<String> = None,
        sections {
            /// The certificate of the platform's own names. Without one, the platform's own CA signs it.
            tls: Tls,
            /// Where the platform keeps its rows.
            database: Database,
            /// How workers learn of jobs.
            queue: Queue,
            /// The RabbitMQ that wakes workers.
            rabbitmq: Rabbitmq,
            /// What runs control planes.
            engine: Engine,
            /// The local engine: control planes as processes of this host.
            local: Local,
            /// Kubernetes' programs.
            assets: Assets,
            /// The host cluster, for the engines that run control planes as pods.
            kubernetes: Kubernetes,
            /// Control planes as pods of the host cluster.
            hosted: Hosted,
            /// Control planes by the vCluster chart on the host cluster.
            vcluster: Vcluster,
            /// The operator's own access to vCluster Platform.
            platform: Platform,
            /// What carries public traffic.
            public_access: PublicAccess,
            /// Public access by Gateways of the host cluster.
            gateway_api: GatewayApi,
            /// The ingress controller that the platform installs in tenants' clusters.
            managed_ingress: ManagedIngress,
            /// The routes to tenants' pods that the agent role keeps on this host.
            routes: Routes,
            /// The admission webhook on a host cluster.
            webhook: Webhook,
            /// What clusters' nodes run of the platform's. Where they reach no registry, name one that they reach, or hand the images out
            /// as archives (`kubebyon assets fetch --images`).
            nodes: Nodes,
            /// What a cluster's API server may reach beyond its own nodes, pods and Services.
            egress: Egress,
            /// HTTP in front of the API.
            http: Http,
            /// How names are resolved.
            dns: Dns,
            /// The PROXY protocol, which hands on a client's address.
            proxy_protocol: ProxyProtocol,
            /// The front door's record of connections.
            access_log: AccessLog,
            /// Metrics on ports of their own.
            metrics: Metrics,
            /// Sessions of people.
            session: Session,
            /// Browsers of other sites.
            cors: Cors,
            /// What the daemon writes to stderr.
            log: Log,
            /// How much one tenant, and all of them, may take.
            limits: Limits,
            /// How long rows are kept that nothing needs any more.
            retention: Retention,
        }
    }
}

/// Where the layers of a configuration come from.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The file; without one, [`DEFAULT_FILE`] if it is there.
    pub file: Option<PathBuf>,
    /// The environment; only names that begin with `KUBEBYON_` are looked at.
    pub environment: Vec<(String, String)>,
    /// Flags as dotted key and value, such as `("data_dir", "/srv/kubebyon")`.
    pub flags: Vec<(String, String)>,
}

/// A configuration that stood its checks, and where its keys were given.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Where each key that was given was given.
    pub origins: Origins,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads the layers and checks the whole; every mistake is reported.
    pub fn load(options: &LoadOptions) -> Result<Loaded, ConfigErrors> {
        let (layers, mut problems) = layers::read(options);
        let (config, origins) = decode::decode(layers.entries, layers.places, &mut problems);
        check::check(&config, &origins, &mut problems);
        if problems.is_empty() { Ok(Loaded { config, origins, file: layers.file }) } else { Err(ConfigErrors::new(problems)) }
    }

    /// Whether this process has a role.
    pub fn has_role(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Clusters are known below this domain.
    pub fn base_domain(&self) -> &str {
        self.base_domain.as_deref().unwrap_or(DEFAULT_BASE_DOMAIN)
    }

    /// Where plain HTTP is answered with a redirect, if anywhere.
    pub fn http_listen(&self) -> Option<ListenAddress> {
        match self.http_listen {
            Listener::Unset if self.platform_host.is_some() => Some(ListenAddress::any(80)),
            other => other.address(),
        }
    }

    /// The socket on which the API answers without sign-in for root and the daemon's own uid.
    pub fn socket_path(&self) -> PathBuf {
        self.data_dir.join("kubebyon.sock")
    }

    /// The file with the first administrator's password.
    pub fn initial_admin_password_path(&self) -> PathBuf {
        self.data_dir.join("initial-admin-password")
    }

    /// The folder with Kubernetes' programs.
    pub fn assets_dir(&self) -> PathBuf {
        self.assets.dir.clone().unwrap_or_else(|| self.data_dir.join("assets"))
    }
}

#[cfg(test)]
mod tests;
