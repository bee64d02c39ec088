//! The node's side of the tunnel: one connection to the cluster's terminator, kept up for as long as the machine is a node.
//!
//! [`NodeTunnel`] is the handle: what the platform says comes out of watches, the API server is reached through [`NodeTunnel::carry`], the
//! platform is asked with [`NodeTunnel::ask`]. Guarantees: the platform is known by the cluster's authority and the tunnel's name alone,
//! whatever lies between; what it asks to dial is decided here once more ([`policy`]); lost connections are made again with growing, random
//! pauses, and at once after [`NodeTunnel::wake`]; a renewed certificate is used soon, and the old connection serves until the new one stands.
//! May import: `domain`, and the tunnel's own.

mod connect;
mod dial;
mod live;
pub mod policy;
pub mod proxy;
mod run;
mod talk;
mod verify;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use self::live::{Live, Question};
use self::proxy::Proxies;
use super::protocol::{Answer, Ask, Hello, NodeState, Report};
use super::relay::{Buffers, enliven, relay};
use crate::domain::join::TunnelEndpoint;
use crate::domain::node::Fate;
use crate::domain::{Ambient, NodeId};

pub use super::session::TunnelStream;

/// How long a stream to the API server waits for the tunnel.
pub const API_DEADLINE: Duration = Duration::from_secs(10);
/// How long a question waits for the tunnel.
const ASK_DEADLINE: Duration = Duration::from_secs(60);

/// What a node's tunnel needs.
pub struct NodeTunnelOptions {
    /// Which node this is.
    pub node: NodeId,
    /// The name that the tunnel's certificate proves and that is sent as SNI.
    pub tunnel_name: String,
    /// Where the tunnel leads while the platform has not said it anew, to be tried in order.
    pub endpoints: Vec<TunnelEndpoint>,
    /// The authority of the tunnel's certificate (PEM).
    pub server_ca_pem: String,
    /// The kubelet's client certificate with its key (PEM); read at each connection, and followed when it changes.
    pub client_pem: PathBuf,
    /// What the node says first; asked at each connection.
    pub hello: Arc<dyn Fn() -> Hello + Send + Sync>,
    /// What may be dialled here.
    pub reach: Reach,
    /// Proxies that lead to the platform.
    pub proxies: Proxies,
    /// Randomness for pauses.
    pub ambient: Ambient,
}

/// What of the cluster's network this node knows; it dials nothing else for the platform, but public hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// The node's `InternalIP`; the platform's word takes its place.
    pub address: IpAddr,
    /// The pods' range.
    pub pod_cidr: IpNet,
    /// The Services' range.
    pub service_cidr: IpNet,
    /// The address that leads to the API server.
    pub api_local_address: IpAddr,
}

/// How the tunnel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It has not been up yet.
    Connecting,
    /// It is up.
    Connected {
        /// Where it leads: host and port.
        endpoint: String,
    },
    /// It is down, and made again soon.
    Disconnected {
        /// Why: a sentence.
        error: String,
        /// How often in a row the platform was reached and turned this node away. From the third time on `/join/v1/fate` is worth asking.
        refused: u32,
    },
    /// The membership has ended; the tunnel is not made again.
    Ended {
        /// How.
        fate: Fate,
        /// A sentence with what to do.
        message: String,
    },
}

/// The tunnel of this node. Clones are of the same tunnel, which ends with the last of them.
#[derive(Clone)]
pub struct NodeTunnel {
    shared: Arc<Shared>,
    _running: Arc<AbortOnDropHandle<()>>,
}

/// What the handle and the task that keeps the tunnel up share.
struct Shared {
    options: NodeTunnelOptions,
    status: watch::Sender<Status>,
    state: watch::Sender<Option<Arc<NodeState>>>,
    live: watch::Sender<Option<Arc<Live>>>,
    report: watch::Sender<Option<Report>>,
    wake: Notify,
    buffers: Arc<Buffers>,
}

impl NodeTunnel {
    /// Begins to keep the tunnel up.
    ///
    /// # Errors
    /// The authority is no PEM certificate, or the tunnel's name is no DNS name.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(options: NodeTunnelOptions) -> anyhow::Result<Self> {
        let connector = connect::Connector::new(&options)?;
        let shared = Arc::new(Shared {
            options,
            status: watch::Sender::new(Status::Connecting),
            state: watch::Sender::new(None),
            live: watch::Sender::new(None),
            report: watch::Sender::new(None),
            wake: Notify::new(),
            buffers: Arc::default(),
        });
        let running = tokio::spawn(run::run(Arc::clone(&shared), connector));
        Ok(Self { shared, _running: Arc::new(AbortOnDropHandle::new(running)) })
    }

    /// How the tunnel is, and its changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// What the platform said last, and its changes; `None` before it said anything. It stays while the tunnel is down.
    pub fn state(&self) -> watch::Receiver<Option<Arc<NodeState>>> {
        self.shared.state.subscribe()
    }

    /// Something happened that connections do not survive or that lets them succeed (the machine slept, an address changed): a tunnel that
    /// is down is made again at once, one that is up is tried.
    pub fn wake(&self) {
        self.shared.wake.notify_one();
    }

    /// Says how the node is; the latest is said again at each connection.
    pub fn report(&self, report: Report) {
        self.shared.report.send_if_modified(|said| {
            let differs = said.as_ref() != Some(&report);
            if differs {
                *said = Some(report);
            }
            differs
        });
    }

    /// A stream to the cluster's API server. Waits at most [`API_DEADLINE`] for the tunnel.
    ///
    /// # Errors
    /// The tunnel is down, or the platform refuses the stream; the text says why.
    pub async fn api_stream(&self) -> io::Result<TunnelStream> {
        let down = |kind| io::Error::new(kind, self.why_down());
        let opened = async {
            let mut lost = None;
            loop {
                let live = self.live(lost.as_ref()).await.ok_or_else(|| down(io::ErrorKind::NotConnected))?;
                match live.api_stream().await {
                    // Lost while it was asked; another may come in time.
                    Err(_) if live.is_lost() => lost = Some(live),
                    other => return other,
                }
            }
        };
        tokio::time::timeout(API_DEADLINE, opened).await.map_err(|_| down(io::ErrorKind::TimedOut))?
    }

    /// Waits for a connection that is up and is another than `lost`; `None`: the membership has ended.
    async fn live(&self, lost: Option<&Arc<Live>>) -> Option<Arc<Live>> {
        let (mut live, mut status) = (self.shared.live.subscribe(), self.shared.status.subscribe());
        let usable = |found: &Option<Arc<Live>>| found.as_ref().is_some_and(|found| lost.is_none_or(|lost| !Arc::ptr_eq(lost, found)));
        tokio::select! {
            found = live.wait_for(usable) => found.ok()?.clone(),
            _ = status.wait_for(|status| matches!(status, Status::Ended { .. })) => None,
        }
    }

    /// Connects a client of this machine with the API server until both are done.
    ///
    /// # Errors
    /// There is no way to the API server, or one side was lost; the client's connection was reset.
    pub async fn carry(&self, client: TcpStream) -> io::Result<()> {
        enliven(&client)?;
        match self.api_stream().await {
            Ok(stream) => relay(client, stream, &self.shared.buffers).await,
            Err(error) => {
                // It fails only on a socket that has no peer any more.
                drop(client.set_zero_linger());
                Err(error)
            }
        }
    }

    /// Asks the platform, and again when the tunnel was cut meanwhile. `steps` takes the steps of what was asked for: one CamelCase word and
    /// a sentence.
    ///
    /// # Errors
    /// The platform's refusal, or that there is no tunnel: a sentence.
    pub async fn ask(&self, ask: Ask, steps: impl Fn(&str, &str) + Send + Sync + 'static) -> Result<Answer, String> {
        let steps: live::Steps = Arc::new(steps);
        let mut lost = None;
        loop {
            let Ok(Some(live)) = tokio::time::timeout(ASK_DEADLINE, self.live(lost.as_ref())).await else { return self.unanswered(&ask) };
            match live.ask(Question::new(ask.clone(), Arc::clone(&steps))).await {
                Some(answer) => return answer,
                None => lost = Some(live),
            }
        }
    }

    /// What became of a question that the platform did not answer.
    fn unanswered(&self, ask: &Ask) -> Result<Answer, String> {
        match &*self.shared.status.borrow() {
            // Whoever left has no tunnel on which to be told so.
            Status::Ended { fate: Fate::Left, .. } if matches!(ask, Ask::Leave { .. }) => Ok(Answer::Done),
            Status::Ended { message, .. } => Err(message.clone()),
            _ => Err(self.why_down()),
        }
    }

    fn why_down(&self) -> String {
        match &*self.shared.status.borrow() {
            Status::Connecting => "the tunnel to the platform is not up yet".to_owned(),
            Status::Connected { .. } => "the platform did not answer in time".to_owned(),
            Status::Disconnected { error, .. } => format!("the tunnel to the platform is down: {error}"),
            Status::Ended { message, .. } => message.clone(),
        }
    }
}
