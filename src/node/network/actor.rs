//! The task that keeps the network: it wakes for what the platform says, for changes on this machine, for probes, and once a minute.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use ipnet::{IpNet, Ipv4Net};
use tokio::sync::watch;
use tokio::time::Instant;

use super::peers::{Here, Path, Peers, Transmit};
use super::probe::{Probe, ProbeKey};
use super::rules::Rules;
use super::socket::ProbeSocket;
use super::{Settings, Status, cni, iptables, links, overlay, paths, rules};
use crate::domain::Ambient;
use crate::node::layout::Layout;
use crate::routes::{self, Netlink, Ownership, Route, Watch};
use crate::tunnel::protocol::NodeState;

/// How often everything is looked at although nothing happened.
const SLOW: Duration = Duration::from_secs(60);
/// How soon after something failed.
const RETRY: Duration = Duration::from_secs(5);
/// How often it is looked at whether our own rules still stand, at most.
const RULES: Duration = Duration::from_secs(30);
/// How often firewalls of others are looked at.
const FIREWALLS: Duration = Duration::from_secs(300);
/// The most probes of others that are answered in a second.
const ANSWERS: u32 = 500;

pub(super) struct Actor {
    pub(super) settings: Settings,
    pub(super) layout: Layout,
    pub(super) ambient: Ambient,
    pub(super) state: watch::Receiver<Option<NodeState>>,
    pub(super) status: watch::Sender<Status>,
    netlink: Netlink,
    watch: Watch,
    socket: Option<ProbeSocket>,
    key: Option<ProbeKey>,
    peers: Peers,
    here: Option<Here>,
    rules: Option<Rules>,
    rules_at: Option<Instant>,
    firewalls_at: Option<Instant>,
    nftables: Option<bool>,
    answers: (Instant, u32),
    problems: Vec<String>,
    next_pass: Instant,
}

impl Actor {
    /// In this thread's network namespace.
    pub(super) fn new(
        settings: Settings,
        layout: Layout,
        ambient: Ambient,
        state: watch::Receiver<Option<NodeState>>,
        status: watch::Sender<Status>,
    ) -> anyhow::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            settings,
            layout,
            ambient,
            state,
            status,
            netlink: Netlink::open()?,
            watch: Watch::open()?,
            socket: None,
            key: None,
            peers: Peers::default(),
            here: None,
            rules: None,
            rules_at: None,
            firewalls_at: None,
            nftables: None,
            answers: (now, 0),
            problems: Vec::new(),
            next_pass: now,
        })
    }

    pub(super) async fn run(mut self) {
        loop {
            let now = Instant::now();
            let probes_at = self.here.as_ref().and_then(|_| self.peers.next(now));
            let wake = probes_at.map_or(self.next_pass, |at| at.min(self.next_pass));
            let received = async {
                match &self.socket {
                    Some(socket) => socket.receive().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.state.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.take_state();
                    self.pass().await;
                }
                () = self.watch.changed() => self.pass().await,
                packet = received => match packet {
                    Ok((packet, source)) => self.hear(&packet, source.ip()),
                    Err(error) => {
                        tracing::warn!(%error, "the socket of probes failed; opening it anew");
                        self.socket = None;
                        self.next_pass = self.next_pass.min(now + RETRY);
                    }
                },
                () = tokio::time::sleep_until(wake) => {
                    if self.next_pass <= Instant::now() {
                        self.pass().await;
                    }
                }
            }
            self.probe().await;
        }
    }

    fn take_state(&mut self) {
        let Some(state) = self.state.borrow_and_update().clone() else { return };
        let bytes = base64::engine::general_purpose::STANDARD.decode(&state.probe_key).ok();
        let key = bytes.map(zeroize::Zeroizing::new).and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
        if key.is_none() {
            tracing::warn!("the platform's key for probes is not 32 bytes; other nodes cannot be probed");
        }
        self.key = key.map(|key| ProbeKey::new(&key));
        self.peers.set(&state.peers, self.settings.node, Instant::now(), &self.ambient);
    }

    fn pods(&self) -> Option<Ipv4Net> {
        match self.state.borrow().as_ref().and_then(|state| state.pod_cidr) {
            Some(IpNet::V4(net)) => Some(net.trunc()),
            _ => None,
        }
    }

    /// Sends what is due, and takes over what rounds that ended found.
    async fn probe(&mut self) {
        // A second turn follows at most once for what the first one found.
        for _ in 0..2 {
            let Some(here) = &self.here else { return };
            let (packets, changed) = self.peers.due(here, Instant::now(), &self.ambient);
            for packet in packets {
                self.send(&packet);
            }
            if !changed {
                return;
            }
            self.pass().await;
        }
    }

    fn send(&self, packet: &Transmit) {
        let (Some(socket), Some(key)) = (&self.socket, &self.key) else { return };
        if let Err(error) = socket.send(&packet.probe.encode(key), packet.to, packet.source, packet.dev) {
            tracing::trace!(%error, to = %packet.to, way = ?packet.probe.way, "a probe was not sent");
        }
    }

    fn hear(&mut self, packet: &[u8], source: IpAddr) {
        let Some(probe) = self.key.as_ref().and_then(|key| Probe::decode(packet, key)) else { return };
        let now = Instant::now();
        if probe.answer {
            if let Some(here) = &self.here {
                self.peers.answered(&probe, here);
            }
            return;
        }
        if now.duration_since(self.answers.0) >= Duration::from_secs(1) {
            self.answers = (now, 0);
        }
        self.answers.1 += 1;
        if self.answers.1 > ANSWERS {
            return;
        }
        if let Some(answer) = self.peers.asked(&probe, source, self.settings.node, now) {
            self.send(&answer);
        }
    }

    /// Looks at everything and brings it to what is wanted.
    async fn pass(&mut self) {
        let mut problems = Vec::new();
        let mut conflicts = Vec::new();
        if let Err(error) = self.try_pass(&mut problems, &mut conflicts).await {
            problems.push(format!("{error:#}"));
        }
        for problem in problems.iter().filter(|problem| !self.problems.contains(problem)) {
            tracing::warn!(problem, "the pod network is not as it should be");
        }
        self.next_pass = Instant::now() + if problems.is_empty() { SLOW } else { RETRY };
        let aspect = paths::aspect(&self.peers, self.here.as_ref(), &conflicts, &problems);
        let underlay = self.here.as_ref().map_or_else(Vec::new, |here| links::addresses(&here.underlay));
        self.status.send_if_modified(|status| {
            let before = status.clone();
            // Until the first answers are in, what was said last stands.
            status.pod_network = aspect.or_else(|| status.pod_network.take());
            status.underlay = underlay;
            *status != before
        });
        self.problems = problems;
    }

    async fn try_pass(&mut self, problems: &mut Vec<String>, conflicts: &mut Vec<(Route, Route)>) -> anyhow::Result<()> {
        let Some(pods) = self.pods() else { return Ok(()) };
        let underlay = links::underlay(&self.netlink, self.settings.preferred).await?;
        let mtu = links::pod_mtu(&underlay);
        if links::ensure_bridge(&self.netlink, pods, mtu).await? {
            tracing::warn!(%pods, "this node's range of pod addresses changed: pods that run here need to be made anew");
        }
        let overlay = links::ensure_overlay(&self.netlink, self.settings.node, pods, mtu).await?;
        self.meet(Here { node: self.settings.node, pods, underlay, overlay: Some(overlay) });
        forward(problems);
        self.firewall(pods, problems).await;
        if self.socket.is_none() {
            self.socket = ProbeSocket::open()
                .map_err(|error| problems.push(format!("cannot listen on UDP port {} for probes: {error}", super::PROBE_PORT)))
                .ok();
        }
        let content = cni::render(pods, mtu, self.nftables.unwrap_or(false));
        if cni::write(&self.layout, &content)? {
            tracing::info!(%pods, mtu, "wrote the CNI configuration");
        }
        self.routes(overlay, problems, conflicts).await
    }

    /// Takes over what this machine is among the others; when its addresses changed, they are asked anew.
    fn meet(&mut self, here: Here) {
        let before = self.here.replace(here);
        if before.as_ref().is_some_and(|before| Some(before) != self.here.as_ref()) {
            self.peers.hurry(Instant::now(), &self.ambient);
        }
    }

    async fn routes(&mut self, index: u32, problems: &mut Vec<String>, conflicts: &mut Vec<(Route, Route)>) -> anyhow::Result<()> {
        let Some(here) = &self.here else { return Ok(()) };
        let ownership = self.settings.ownership();
        let undecided = self.peers.iter().any(|known| known.path(here) == Path::Undecided);
        let present = if undecided { self.present(&ownership).await? } else { Vec::new() };
        let desired = paths::desired(&self.peers, here, &present);
        overlay::apply(&self.netlink, index, &desired.entries, &desired.keep).await?;
        let pass = routes::reconcile(&self.netlink, &ownership, &desired.routes).await?;
        if pass.changed() {
            tracing::info!(added = pass.added, replaced = pass.replaced, deleted = pass.deleted, "changed routes to other nodes' pods");
        }
        problems.extend(pass.failures.iter().map(ToString::to_string));
        conflicts.extend(pass.conflicts);
        Ok(())
    }

    /// Our routes that are there, each with its device's name.
    async fn present(&self, ownership: &Ownership) -> anyhow::Result<Vec<(Route, Option<String>)>> {
        let links = self.netlink.links().await?;
        let name = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
        let routes = self.netlink.routes().await?.into_iter().map(|(route, _)| route).filter(|route| ownership.owns(route));
        Ok(routes.map(|route| (route.clone(), route.dev.and_then(name))).collect())
    }

    /// Masquerading, and leave for pods where others drop by default. What fails is tried again with the next pass.
    async fn firewall(&mut self, pods: Ipv4Net, problems: &mut Vec<String>) {
        let now = Instant::now();
        let peers = self.peers.iter().flat_map(|known| known.underlay().iter().copied()).collect();
        let wanted = Rules { own_pods: pods, pods: self.settings.pods, peers };
        if self.rules.as_ref() == Some(&wanted) && self.rules_at.is_some_and(|at| now < at) {
            return;
        }
        self.rules_at = Some(now + RULES);
        let present = rules::present().await;
        self.nftables = Some(present.is_some());
        if present.is_some() && (present == Some(false) || self.rules.as_ref() != Some(&wanted)) {
            match rules::apply(&wanted).await {
                Ok(()) => self.rules = Some(wanted.clone()),
                Err(error) => problems.push(format!("cannot set up masquerading for pods: {error:#}")),
            }
        }
        if self.firewalls_at.is_some_and(|at| now < at) {
            return;
        }
        let mut accepted = self.settings.accepted(pods);
        if present.is_none() {
            accepted.extend(wanted.iptables());
        }
        match iptables::apply(&accepted).await {
            Ok(()) => self.firewalls_at = Some(now + FIREWALLS),
            Err(error) => {
                self.rules_at = None;
                problems.push(format!("cannot let pods through this machine's firewall: {error:#}"));
            }
        }
    }
}

/// Keeps forwarding on.
fn forward(problems: &mut Vec<String>) {
    let path = PathBuf::from("/proc/sys/net/ipv4/ip_forward");
    if std::fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1") {
        return;
    }
    if let Err(error) = std::fs::write(&path, "1") {
        problems.push(format!("cannot switch forwarding on ({}): {error}", path.display()));
    }
}
