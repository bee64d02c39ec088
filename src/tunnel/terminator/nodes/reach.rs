//! Streams into a cluster's network: each target leads to a node, or is refused.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use super::NodeTable;
use super::link::{EACH, Link, Links};
use super::way::{Way, decide};
use crate::domain::NodeId;
use crate::tunnel::connect::{Host, Target};
use crate::tunnel::protocol::Opening;
use crate::tunnel::session::TunnelStream;
use crate::tunnel::terminator::socket::ANSWER_DEADLINE;
use crate::tunnel::terminator::targets::{Refusal, Stream, Targets};

/// What remains of the API server's patience for the answer itself.
const MARGIN: Duration = Duration::from_millis(500);
/// How many nodes are asked for one stream.
const MAX_ASKED: usize = 4;

/// The targets of a cluster with nodes.
pub struct NodeTargets {
    pub(super) table: watch::Receiver<Arc<NodeTable>>,
    pub(super) links: Arc<Links>,
    pub(super) api_local: IpAddr,
}

impl NodeTargets {
    async fn through(&self, node: NodeId, opening: Opening, deadline: Instant) -> Result<TunnelStream, Refusal> {
        match self.links.get(node) {
            Some(link) => link.dial(opening, deadline).await,
            None => Err(self.not_connected(node)),
        }
    }

    fn not_connected(&self, node: NodeId) -> Refusal {
        let table = self.table.borrow();
        let name = table.nodes.iter().find(|entry| entry.id == node).map_or("", |entry| entry.name.as_str());
        match self.links.down_since(node) {
            Some(since) => Refusal::new(502, format!("node {name} is not connected (its tunnel is down since {since})")),
            None => Refusal::new(502, format!("node {name} is not connected")),
        }
    }

    /// Asks one node after the other until one gets there; refusals of what may not be are final.
    async fn any(&self, links: Vec<Arc<Link>>, opening: &Opening, deadline: Instant) -> Result<(TunnelStream, NodeId), Refusal> {
        let mut last = Refusal::new(502, "no node of this cluster is connected");
        let many = links.len() > 1;
        for link in links.into_iter().take(MAX_ASKED) {
            let until = if many { deadline.min(Instant::now() + EACH) } else { deadline };
            match link.dial(opening.clone(), until).await {
                Ok(stream) => return Ok((stream, link.id)),
                Err(refusal) if refusal.status == 403 => return Err(refusal),
                Err(refusal) => last = refusal,
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(last)
    }
}

#[async_trait]
impl Targets for NodeTargets {
    async fn open(&self, target: &Target) -> Result<Box<dyn Stream>, Refusal> {
        let deadline = Instant::now() + ANSWER_DEADLINE - MARGIN;
        let way = decide(&self.table.borrow(), self.api_local, target)?;
        let host = match &target.host {
            Host::Address(address) => address.to_canonical().to_string(),
            Host::Name(name) => name.clone(),
        };
        let opening = Opening::Dial { host, port: target.port, public: way == Way::Public };
        let stream = match way {
            Way::Node(node) => self.through(node, opening, deadline).await?,
            Way::Service | Way::Public => self.any(self.links.all(), &opening, deadline).await?.0,
            Way::Pod(pod) => {
                let (stream, node) = self.any(self.links.for_pod(pod), &opening, deadline).await?;
                self.links.answered(pod, node);
                stream
            }
        };
        Ok(Box::new(stream))
    }
}
