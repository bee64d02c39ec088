//! The daemon: the order in which its parts come up, and how they are wired to each other.
//!
//! Order: configuration (whole), data folder and its lock, the shared port (so that a port that is taken is told before
//! anything is touched), store, keys, engine (which adopts what runs), front door and API, workers. Then it says READY.

mod addressing;
mod front;
mod keys;
mod node_files;
mod platform_tls;
mod ports;
mod programs;
mod serve;

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::api::state::{Options, Ports};
use crate::api::{self, ApiState};
use crate::assets::Assets;
use crate::config::{Config, LoadOptions, Loaded, LogFormat, Role};
use crate::domain::{Ambient, EngineKind};
use crate::engine::Engine;
use crate::engine::local::{LocalEngine, LocalOptions, LocalTools};
use crate::jobs::{self, Tools, prune};
use crate::proxy::{self, FrontDoor, FrontDoorOptions, NodePorts};
use crate::queue::{self, Embedded, Worker, WorkerOptions};
use crate::runtime::{DataDirLock, Ended, Format, Lifecycle, Tasks, Telemetry, prepare_data_dir};
use crate::store::{Change, Store, sqlite};
use addressing::CurrentAddressing;
use front::Front;
use platform_tls::PlatformIdentity;

/// Runs the daemon until it is asked to stop.
pub fn run(load: &LoadOptions) -> anyhow::Result<ExitCode> {
    let loaded = Config::load(load)?;
    let config = &loaded.config;
    let telemetry = Telemetry::init(&config.log.level, if config.log.format == LogFormat::Json { Format::Json } else { Format::Text })?;
    prepare_data_dir(&config.data_dir)?;
    let lock = DataDirLock::acquire(&config.data_dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("kubebyon").build()?;
    let ended = runtime.block_on(live(loaded, load.clone(), telemetry));
    // What still blocks (a file system that hangs, say) does not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    drop(lock);
    match ended? {
        Ended::Asked => Ok(ExitCode::SUCCESS),
        ended @ Ended::Failed { .. } => Ok(ExitCode::from(ended.exit_code())),
    }
}

/// The configuration that is in force: what was read at the start, with what a reload changed.
type InForce = Arc<ArcSwap<Loaded>>;

/// What the parts share.
struct Parts {
    /// The configuration of the start.
    loaded: Arc<Loaded>,
    in_force: InForce,
    /// Told after each reload.
    reloaded: Arc<Notify>,
    ambient: Ambient,
    store: Store,
    keys: keys::Keys,
    host: String,
    addressing: CurrentAddressing,
    assets: Arc<Assets>,
    engine: Arc<LocalEngine>,
}

async fn live(loaded: Loaded, load: LoadOptions, telemetry: Telemetry) -> anyhow::Result<Ended> {
    let started = tokio::time::Instant::now();
    let config = &loaded.config;
    let lifecycle = Lifecycle::new(config.limits.drain_timeout.0)?;
    let tasks = lifecycle.tasks();
    let shared_port = if config.has_role(Role::Api) { Some(proxy::bind(config.listen.0)?) } else { None };
    let parts = Parts::assemble(loaded).await?;
    let mut reload =
        Reload { load, telemetry, in_force: Arc::clone(&parts.in_force), reloaded: Arc::clone(&parts.reloaded), identity: None };
    if let Some(listener) = shared_port {
        let listen = listener.address();
        reload.identity = Some(parts.serve_api(&tasks, listener).await?);
        tracing::info!(%listen, socket = %parts.loaded.config.socket_path().display(), "the API is served");
    }
    if parts.loaded.config.has_role(Role::Worker) {
        parts.work(&tasks).await?;
    }
    parts.follow_settings(&tasks, reload.identity.clone());
    let reload = Arc::new(Mutex::new(reload));
    tracing::info!(milliseconds = started.elapsed().as_millis(), version = env!("CARGO_PKG_VERSION"), "started");
    Ok(lifecycle
        .run("serving", move || {
            let outcome = reload.lock().unwrap_or_else(PoisonError::into_inner).again();
            async move { outcome }
        })
        .await)
}

impl Parts {
    async fn assemble(loaded: Loaded) -> anyhow::Result<Self> {
        let config = &loaded.config;
        let ambient = Ambient::system();
        let store = Store::new(sqlite::open(&config.data_dir.join("kubebyon.db"))?);
        let keys = keys::load(&store, &ambient, &config.data_dir).await?;
        let installation = keys::installation(&store, &ambient).await?;
        let host = keys::host(&store).await?;
        let addressing = CurrentAddressing::load(config, &store).await?;
        let settings = super::assets_settings(config);
        let assets = Arc::new(Assets::open(settings.dir, crate::assets::Arch::host(), settings.mirror));
        let limits = &config.limits;
        let mut options = LocalOptions::new(config.data_dir.clone(), host.clone(), installation);
        options.address_range = match config.local.address_range {
            ipnet::IpNet::V4(net) => net,
            ipnet::IpNet::V6(net) => anyhow::bail!("local.address_range: {net} is IPv6, of which a machine has one loopback address"),
        };
        options.uid_range = config.local.uid_range.first..=config.local.uid_range.last;
        options.limits.etcd_quota_bytes = limits.etcd_quota_bytes.bytes();
        options.limits.max_requests_inflight = limits.max_requests_inflight;
        options.limits.max_mutating_requests_inflight = limits.max_mutating_requests_inflight;
        options.limits.audit_max_size_mb = u32::try_from(limits.audit_log_file_bytes.bytes() >> 20).unwrap_or(u32::MAX);
        options.limits.audit_max_files = u32::from(limits.audit_log_files);
        options.memory_limit = limits.cluster_memory_bytes.bytes();
        options.memory_estimate = limits.cluster_memory_estimate_bytes.bytes();
        options.nodes.coredns_image.clone_from(&config.nodes.coredns_image);
        options.nodes.public_hosts = config.egress.public_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        let current = addressing.clone();
        let tools = LocalTools {
            store: store.clone(),
            ambient: ambient.clone(),
            programs: Arc::new(programs::FromAssets(Arc::clone(&assets))),
            tenant_key: Arc::clone(&keys.tenant),
            addressing: Arc::new(move || current.get()),
        };
        let engine = LocalEngine::start(options, tools).await?;
        let loaded = Arc::new(loaded);
        let in_force = Arc::new(ArcSwap::new(Arc::clone(&loaded)));
        Ok(Self { loaded, in_force, reloaded: Arc::default(), ambient, store, keys, host, addressing, assets, engine })
    }

    /// The front door, the API behind it and on the Unix socket, and the redirect of plain HTTP.
    async fn serve_api(&self, tasks: &Tasks, listener: proxy::BoundListener) -> anyhow::Result<Arc<PlatformIdentity>> {
        let config = &self.loaded.config;
        api::auth::ensure_first_admin(&self.store, &self.ambient, &config.initial_admin_password_path()).await?;
        let identity = Arc::new(PlatformIdentity::load(config, &self.store, &self.ambient, &self.keys, &self.addressing).await?);
        let ports = self.api_ports(&identity)?;
        let state = ApiState::new(self.store.clone(), self.ambient.clone(), ports, self.api_options(), tasks.soft().clone());
        let server = serve::ApiServer::new(api::router(state), Arc::clone(&identity.tls), tasks.soft().clone());
        let socket = serve::bind_socket(&config.socket_path())?;
        tasks.spawn("unix socket", {
            let server = server.clone();
            let drain = config.limits.drain_timeout.0;
            async move {
                server.clone().serve_socket(socket).await;
                server.drained(drain).await;
                Ok(())
            }
        });
        tasks.spawn("platform certificate", {
            let (identity, store, ambient) = (Arc::clone(&identity), self.store.clone(), self.ambient.clone());
            let (addressing, soft) = (self.addressing.clone(), tasks.soft().clone());
            async move {
                identity.keep(&store, &ambient, &addressing, &soft).await;
                Ok(())
            }
        });
        self.open_front_door(tasks, listener, server).await?;
        self.redirect_http(tasks)?;
        Ok(identity)
    }

    async fn open_front_door(&self, tasks: &Tasks, listener: proxy::BoundListener, server: serve::ApiServer) -> anyhow::Result<()> {
        let limits = &self.loaded.config.limits;
        let options = FrontDoorOptions {
            hello_timeout: limits.client_hello_timeout.0,
            max_connections: limits.max_connections as usize,
            max_per_source_before_routing: limits.max_connections_per_source as usize,
            drain_timeout: limits.drain_timeout.0,
            ..FrontDoorOptions::default()
        };
        let address = listener.address().ip();
        let door = FrontDoor::new(options, Arc::new(server));
        let node_ports = Arc::new(NodePorts::new(address, options.max_connections, options.forwarding, Arc::clone(door.stats())));
        let front = Front {
            door: Arc::clone(&door),
            node_ports: Arc::clone(&node_ports),
            store: self.store.clone(),
            ambient: self.ambient.clone(),
            addressing: self.addressing.clone(),
        };
        front.refresh(&mut std::collections::BTreeMap::new()).await?;
        tasks.spawn("names of the front door", {
            let soft = tasks.soft().clone();
            async move {
                front.follow(soft).await;
                Ok(())
            }
        });
        tasks.spawn("front door", {
            let (soft, drain) = (tasks.soft().clone(), limits.drain_timeout.0);
            async move {
                let cut = door.serve(listener, soft).await?.cut + node_ports.drain(drain).await.cut;
                tracing::info!(cut, "the front door is closed; flows that were still open at the deadline were cut");
                Ok(())
            }
        });
        Ok(())
    }

    fn redirect_http(&self, tasks: &Tasks) -> anyhow::Result<()> {
        let Some(listen) = self.loaded.config.http_listen() else { return Ok(()) };
        let listener = std::net::TcpListener::bind(listen.0).with_context(|| format!("cannot listen on {listen} (http_listen)"))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let addressing = self.addressing.clone();
        let target = Arc::new(move |host: &str| {
            let current = addressing.get();
            let known = current.platform_names.iter().any(|name| name.eq_ignore_ascii_case(host));
            known.then(|| crate::domain::access::url(host, current.advertised.1))
        });
        let soft = tasks.soft().clone();
        tasks.spawn("redirect of plain HTTP", async move {
            serve::serve_redirect(listener, target, soft).await;
            Ok(())
        });
        Ok(())
    }

    fn api_ports(&self, identity: &Arc<PlatformIdentity>) -> anyhow::Result<Ports> {
        Ok(Ports {
            logs: Arc::new(ports::LocalLogs(Arc::clone(&self.engine))),
            catalogue: Arc::new(ports::Versions { assets: Arc::clone(&self.assets), in_force: Arc::clone(&self.in_force) }),
            capacity: Arc::new(ports::LocalCapacity(Arc::clone(&self.engine))),
            addresses: Arc::new(self.addressing.clone()),
            fixed: Arc::new(ports::Fixed(Arc::clone(&self.in_force))),
            credentials: Arc::new(ports::PkiCredentials(Arc::clone(&self.keys.platform))),
            identity: Arc::<PlatformIdentity>::clone(identity),
            node_files: Arc::new(node_files::FilesForNodes::new(Arc::clone(&self.assets))?),
        })
    }

    fn api_options(&self) -> Options {
        let config = &self.loaded.config;
        Options {
            default_engine: config.engine.default,
            nodeport_range: config.nodeport_range.first..=config.nodeport_range.last,
            cookie_secure: config.session.cookie_secure,
            pause_image: config.nodes.pause_image.clone(),
            ..Options::new(self.host.clone())
        }
    }

    /// The workers of this host, and what is done from time to time.
    async fn work(&self, tasks: &Tasks) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        // The lock on the data folder says that no other process of this host works: what it left is free.
        let freed = queue::reclaim(&self.store, &self.ambient, &self.host).await?;
        if freed > 0 {
            tracing::info!(freed, "jobs that an earlier process left are taken up again");
        }
        let engine: Arc<dyn Engine> = Arc::<LocalEngine>::clone(&self.engine);
        let addressing = self.addressing.clone();
        let tools = Tools {
            engines: Arc::new(HashMap::from([(EngineKind::Local, engine)])),
            addressing: Arc::new(move || addressing.get()),
            tenant_key: Arc::clone(&self.keys.tenant),
            platform_key: Arc::clone(&self.keys.platform),
        };
        let retention =
            prune::Retention { events: config.retention.events.0, succeeded_jobs: config.retention.jobs.0, ..prune::Retention::default() };
        let mut options = WorkerOptions::new(self.host.clone(), &self.ambient);
        options.concurrency = usize::from(config.limits.jobs_at_once);
        let transport = Arc::new(Embedded::new(&self.store));
        let worker = Worker::new(self.store.clone(), self.ambient.clone(), transport, options).with(Arc::new(prune::Prune { retention }));
        let worker = jobs::handlers(&tools).into_iter().fold(worker, Worker::with);
        let soft = tasks.soft().clone();
        tasks.spawn("worker", async move {
            worker.run(soft).await;
            Ok(())
        });
        let (store, ambient, soft) = (self.store.clone(), self.ambient.clone(), tasks.soft().clone());
        tasks.spawn("plan of chores", async move {
            prune::schedule(store, ambient, soft).await;
            Ok(())
        });
        Ok(())
    }

    /// Follows settings and reloads: addresses, and with them the platform's certificate.
    fn follow_settings(&self, tasks: &Tasks, identity: Option<Arc<PlatformIdentity>>) {
        let (store, ambient, in_force) = (self.store.clone(), self.ambient.clone(), Arc::clone(&self.in_force));
        let reloaded = Arc::clone(&self.reloaded);
        let (addressing, soft) = (self.addressing.clone(), tasks.soft().clone());
        let mut changes = self.store.changes();
        tasks.spawn("settings", async move {
            use tokio::sync::broadcast::error::RecvError;
            loop {
                let change = tokio::select! {
                    () = soft.cancelled() => return Ok(()),
                    () = reloaded.notified() => Ok(Change::Settings),
                    change = changes.recv() => change,
                };
                match change {
                    Ok(Change::Settings) | Err(RecvError::Lagged(_)) => {}
                    Ok(_) => continue,
                    Err(RecvError::Closed) => return Ok(()),
                }
                if addressing.refresh(&in_force.load().config, &store).await?
                    && let Some(identity) = &identity
                {
                    identity.renew(&store, &ambient, &addressing).await?;
                }
            }
        });
    }
}

/// What SIGHUP does: reads the configuration again and applies what can be applied.
struct Reload {
    load: LoadOptions,
    telemetry: Telemetry,
    in_force: InForce,
    reloaded: Arc<Notify>,
    identity: Option<Arc<PlatformIdentity>>,
}

impl Reload {
    fn again(&mut self) -> anyhow::Result<String> {
        let next = Config::load(&self.load).context("the configuration is wrong now, so what was in force stays")?;
        let current = self.in_force.load();
        let diff = current.config.reload_diff(&next.config);
        self.telemetry.set_level(&next.config.log.level)?;
        if let Some(identity) = &self.identity {
            identity.tls.reload()?;
        }
        self.in_force.store(Arc::new(Loaded { config: current.config.with_reloadable(&next.config), ..next }));
        self.reloaded.notify_one();
        let mut said =
            if diff.applied.is_empty() { "reloaded".to_owned() } else { format!("reloaded; applied: {}", diff.applied.join(", ")) };
        if !diff.needs_restart.is_empty() {
            said = format!("{said}; these wait for a restart: {}", diff.needs_restart.join(", "));
        }
        Ok(said)
    }
}
