//! `kubebyon join`: this machine becomes a node.
//!
//! The order is: look at the machine and at the platform, and stop before anything has changed where it cannot work; make a key and ask for
//! membership; note what was learned; install; start; wait until the platform has verified that pods work here. Every step can be done
//! again: a join that was cut goes on by the same command, uses nothing of its token up, and ends the same. What is made is noted before it
//! is made ([`journal`]), so that `leave` is the exact inverse. May import: `domain`, `pki`.

mod bundle;
pub mod client;
mod containerd;
mod identity;
mod image;
pub mod journal;
mod machine;
mod membership;
mod plan;
mod programs;
mod report;
pub mod service;
mod start;
mod trust;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};

use crate::domain::Ambient;
use crate::domain::join::{JoinRequest, Joined, TokenContent, Trust};
use crate::domain::node::{Machine, Taint, asked};
use crate::node::layout::Layout;
use crate::node::leave;
use crate::node::machine::{Facts, probe};
use crate::node::membership::Membership;
use crate::node::preflight::{self, Finding, Ranges, Wanted};
use crate::node::show::Show;

use client::Client;
use journal::{Journal, Made};
use report::Reporter;

pub use membership::read as present;
pub use plan::{Step, images_dir, plan};
pub use start::{End, STATUS_WITHIN, verify};

/// What a machine's owner asks for.
#[derive(Debug, Clone)]
pub struct Options {
    /// The token.
    pub token: TokenContent,
    /// The node's name; absent: the host name.
    pub name: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// The machine's address to use; absent: that of the default route.
    pub node_ip: Option<IpAddr>,
    /// Registry mirrors: registry → URLs.
    pub registry_mirrors: BTreeMap<String, Vec<String>>,
    /// Take the place of a node of that name which is not Ready.
    pub replace: bool,
    /// A containerd of the owner's own.
    pub containerd_socket: Option<PathBuf>,
    /// Whether systemd is to keep the node role.
    pub service: bool,
    /// Programs out of this file instead of from the platform.
    pub bundle: Option<PathBuf>,
    /// Whether packages may be installed.
    pub packages: bool,
    /// Whether to wait until the node is verified.
    pub verify: bool,
}

/// What a join would do.
#[derive(Debug)]
pub struct Preview {
    /// What was found.
    pub findings: Vec<Finding>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// The machine cannot become a node as it is.
#[derive(Debug, thiserror::Error)]
#[error("this machine cannot become a node as it is{after}")]
pub struct Unfit {
    /// Why: errors, each with its remedy. They were shown already.
    pub findings: Vec<Finding>,
    after: &'static str,
}

/// A join that is going on.
struct Join<'a> {
    options: &'a Options,
    layout: &'a Layout,
    ambient: &'a Ambient,
    show: &'a dyn Show,
    present: Option<Membership>,
}

/// Looks at the machine, and at the platform where one is named; changes nothing.
///
/// # Errors
/// The platform cannot be reached.
pub async fn preview(platform: Option<(&str, &Trust)>, wanted: Wanted, layout: &Layout, ambient: &Ambient) -> anyhow::Result<Preview> {
    let mut wanted = wanted;
    let mut server = None;
    if let Some((url, trust)) = platform {
        let client = Client::new(url, trust, ambient)?;
        wanted.clocks = client.reach().await?;
        server = client::address_of(client.server()).await;
    }
    let facts = Facts::read(layout, probe(layout, server).await);
    if wanted.name.is_empty() {
        wanted.name = facts.hostname.to_lowercase();
    }
    if let Some(membership) = membership::read(layout)? {
        wanted.member = true;
        wanted.cluster = Some(Ranges::from(&membership.cluster));
    }
    wanted.server = server;
    Ok(Preview { findings: preflight::judge(&facts, &wanted), steps: plan(&facts, &wanted, layout) })
}

/// Makes this machine a node.
///
/// # Errors
/// A sentence that says what is wrong and what to do; [`Unfit`] for the machine itself.
pub async fn run(options: &Options, layout: &Layout, ambient: &Ambient, show: &dyn Show) -> anyhow::Result<End> {
    asked::validate_labels(&options.labels)?;
    asked::validate_taints(&options.taints)?;
    let present = membership::read(layout)?;
    if let Some(present) = &present {
        ensure!(
            present.cluster.label == options.token.cluster,
            "this machine is node {} of cluster {} already: run `kubebyon leave` first, then join the other",
            present.name,
            present.cluster.name
        );
        let (name, cluster) = (&present.name, &present.cluster.name);
        show.note(&format!("this machine is node {name} of cluster {cluster} already; what is missing of it is put in place"));
    }
    let join = Join { options, layout, ambient, show, present };
    join.run().await
}

impl Join<'_> {
    async fn run(&self) -> anyhow::Result<End> {
        let client = Client::new(&self.options.token.server, &self.options.token.trust, self.ambient)?;
        let clocks = client.reach().await?;
        let server = client::address_of(client.server()).await;
        let facts = Facts::read(self.layout, probe(self.layout, server).await);
        let mut wanted = self.wanted(&facts);
        (wanted.clocks, wanted.server) = (clocks, server);
        let first = self.judge(&facts, &wanted, &[], "")?;
        if let Some(socket) = &self.options.containerd_socket {
            containerd::check(socket, self.show).await?;
        }
        let reporter = Reporter::new(&client, &self.options.token, &wanted.name, self.show);
        let ended = self.become_a_node(&client, &reporter, &facts, wanted, &first).await;
        if let Err(error) = &ended {
            reporter.failed(&format!("{error:#}")).await;
        }
        ended
    }

    fn wanted(&self, facts: &Facts) -> Wanted {
        let options = self.options;
        let name = options.name.clone().or_else(|| self.present.as_ref().map(|present| present.name.clone()));
        Wanted {
            name: name.unwrap_or_else(|| facts.hostname.to_lowercase()),
            node_ip: self.node_ip(),
            service: options.service,
            packages: options.packages,
            containerd_socket: options.containerd_socket.as_ref().map(|path| path.display().to_string()),
            member: self.present.is_some(),
            ..Wanted::default()
        }
    }

    /// Judges, and shows what was not shown before.
    fn judge(&self, facts: &Facts, wanted: &Wanted, shown: &[Finding], after: &'static str) -> anyhow::Result<Vec<Finding>> {
        let findings = preflight::judge(facts, wanted);
        for finding in findings.iter().filter(|finding| !shown.contains(finding)) {
            self.show.finding(finding);
        }
        if preflight::stops(&findings) {
            return Err(Unfit { findings, after }.into());
        }
        Ok(findings)
    }

    async fn become_a_node(
        &self,
        client: &Client,
        reporter: &Reporter<'_>,
        facts: &Facts,
        mut wanted: Wanted,
        shown: &[Finding],
    ) -> anyhow::Result<End> {
        let mut journal = Journal::open(self.layout)?;
        let key = identity::key(self.layout, &mut journal)?;
        let address = self.address(facts)?;
        self.show.step("Asking", &format!("asking {} for membership as node {}", client.server(), wanted.name));
        let joined = client.join(&self.request(&key, facts, &wanted, address)?, |text| self.show.note(text)).await?;
        ensure!(
            joined.cluster.label == self.options.token.cluster,
            "the platform answered for cluster {} and not for the token's: make a token anew",
            joined.cluster.name
        );
        reporter.step("Signed", &format!("node {} of cluster {}, address {}", joined.name, joined.cluster.name, joined.address)).await;
        wanted.cluster = Some(Ranges::from(&joined.cluster));
        self.judge(facts, &wanted, shown, "; once it can, the same command goes on and uses nothing of the token up")?;
        self.note_places(&mut journal)?;
        let same = self.present.as_ref().is_some_and(|present| present.node_id == joined.node_id);
        if self.present.is_some() && !same {
            // It holds the certificate of a membership that has ended; the node role starts it anew.
            self.show.note("the membership that there was has ended, and this is another: the kubelet starts anew");
            leave::stop_kubelet(self.layout).await;
        }
        identity::keep(self.layout, &mut journal, &key, &joined.certificate_pem, same, self.ambient.now())?;
        let membership = membership::of(self.options, self.present.as_ref(), client.server(), &joined, address);
        membership::write(self.layout, &mut journal, &membership)?;
        for step in plan(facts, &wanted, self.layout) {
            reporter.step(step.name(), &step.to_string()).await;
            self.carry_out(&step, client, facts, &joined, &mut journal).await.with_context(|| format!("step {}", step.name()))?;
        }
        start::wait(self.options, self.layout, &membership, reporter).await
    }

    /// The address that the owner chose, at this or an earlier join.
    fn node_ip(&self) -> Option<IpAddr> {
        self.options.node_ip.or_else(|| self.present.as_ref().and_then(|present| present.options.node_ip))
    }

    /// The address that the machine is to be known by.
    fn address(&self, facts: &Facts) -> anyhow::Result<IpAddr> {
        let chosen = self.node_ip().or(facts.probed.address);
        chosen.context("this machine has no IPv4 address that other machines could see: name one with --node-ip")
    }

    fn request(&self, key: &identity::Key, facts: &Facts, wanted: &Wanted, address: IpAddr) -> anyhow::Result<JoinRequest> {
        let kept = self.present.as_ref().map(|present| present.options.clone()).unwrap_or_default();
        let options = self.options;
        Ok(JoinRequest {
            token: options.token.id,
            secret: options.token.secret.clone(),
            csr_pem: key.request(&wanted.name)?,
            name: wanted.name.clone(),
            address,
            machine: Machine {
                operating_system: facts.os.name.clone(),
                architecture: facts.probed.architecture.clone(),
                kernel: facts.kernel.release.clone(),
                kubebyon_version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Machine::default()
            },
            labels: if options.labels.is_empty() { kept.labels } else { options.labels.clone() },
            taints: if options.taints.is_empty() { kept.taints } else { options.taints.clone() },
            replace: options.replace,
        })
    }

    /// Notes the folders that programs of a node make by themselves, as far as they are not there yet.
    fn note_places(&self, journal: &mut Journal) -> anyhow::Result<()> {
        let root = self.layout.root();
        let made_here = [
            self.layout.kubelet_dir(),
            self.layout.log_dir(),
            self.layout.registry_hosts(),
            root.join("opt/kubebyon"),
            root.join("opt/cni"),
            root.join("etc/cni"),
        ];
        for folder in made_here {
            journal.tree(&folder)?;
            journal.folder(&folder, 0o755)?;
        }
        self.note_mounts(journal)?;
        for folder in ["var/lib/cni", "var/log/pods", "var/log/containers", "usr/libexec/kubernetes", "opt/containerd", "run/containerd"] {
            journal.tree(&root.join(folder))?;
        }
        journal.folder(&self.layout.cni_conf_dir(), 0o755)?;
        journal.folder(&self.layout.containerd_drop_ins(), 0o755)
    }

    /// Notes what the owner has mounted in folders of a node's, so that `leave` lets it stand.
    fn note_mounts(&self, journal: &mut Journal) -> anyhow::Result<()> {
        if self.present.is_some() {
            return Ok(());
        }
        let folders = leave::own_folders(self.layout);
        for at in leave::mount_points()?.into_iter().filter(|at| folders.iter().any(|folder| at.starts_with(folder))) {
            let empty = std::fs::read_dir(&at).is_ok_and(|mut entries| entries.next().is_none());
            journal.note(Made::Mount(at.clone()))?;
            if empty {
                journal.note(Made::Content(at))?;
            }
        }
        Ok(())
    }

    async fn carry_out(&self, step: &Step, client: &Client, facts: &Facts, joined: &Joined, journal: &mut Journal) -> anyhow::Result<()> {
        match step {
            Step::Packages { tool, names } => machine::packages(*tool, names).await,
            Step::Modules { names, file } => machine::modules(self.layout, journal, names, file, self.show).await,
            Step::Sysctls { values, file } => machine::sysctls(facts, self.layout, journal, values, file),
            Step::Programs { containerd, .. } => {
                let placed = programs::places(joined, self.layout, *containerd)?;
                programs::install(&placed, client, self.options.bundle.as_deref(), journal, self.show).await?;
                self.install_self(joined, journal)
            }
            Step::Labels { folders } => machine::labels(folders).await,
            Step::Images { folder } => {
                journal.folder(folder, 0o700)?;
                let version = joined.programs.iter().find(|file| file.kind == "kubebyon").map(|file| file.version.clone());
                let version = version.filter(|version| !version.is_empty()).unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
                let (program, architecture) = (self.layout.bin_dir().join("kubebyon"), facts.probed.architecture.clone());
                let folder = folder.clone();
                let packed = tokio::task::spawn_blocking(move || image::write(&program, &version, &architecture, &folder));
                packed.await.context("packing ended")?.map(drop)
            }
            Step::Unit { .. } => service::install(self.layout, journal).await,
        }
    }

    /// This very program, where the platform hands out none, and the name by which people call it.
    fn install_self(&self, joined: &Joined, journal: &mut Journal) -> anyhow::Result<()> {
        let place = self.layout.bin_dir().join("kubebyon");
        if !joined.programs.iter().any(|file| file.kind == "kubebyon") {
            let own = std::env::current_exe().context("this program's own file is not known")?;
            let same = place.exists() && programs::sha256(&own)? == programs::sha256(&place)?;
            if !same {
                let content = std::fs::read(&own).with_context(|| format!("cannot read {}", own.display()))?;
                journal.write(&place, &content, 0o755)?;
            }
        }
        let called = self.layout.root().join("usr/local/bin/kubebyon");
        match called.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => journal.link(&called, &place),
            // Somebody's own; `/opt/kubebyon/bin/kubebyon` is there as well.
            _ => Ok(()),
        }
    }
}

/// Parses `K=V` of a flag.
///
/// # Errors
/// It is none.
pub fn parse_label(text: &str) -> anyhow::Result<(String, String)> {
    let Some((key, value)) = text.split_once('=') else { bail!("{text:?} is no label: it looks like team=web") };
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses `K=V:Effect` or `K:Effect` of a flag.
///
/// # Errors
/// It is none.
pub fn parse_taint(text: &str) -> anyhow::Result<Taint> {
    let Some((rest, effect)) = text.rsplit_once(':') else { bail!("{text:?} is no taint: it looks like dedicated=gpu:NoSchedule") };
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

/// Parses `REGISTRY=URL` of a flag.
///
/// # Errors
/// It is none.
pub fn parse_mirror(text: &str) -> anyhow::Result<(String, String)> {
    let parsed = text.split_once('=').filter(|(registry, url)| {
        let plain = !registry.is_empty() && registry.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:_*".contains(&b));
        let web = url.starts_with("https://") || url.starts_with("http://");
        plain && web && reqwest::Url::parse(url).is_ok_and(|url| url.host_str().is_some())
    });
    let Some((registry, url)) = parsed else { bail!("{text:?} is no mirror: it looks like docker.io=https://mirror.example.com") };
    Ok((registry.to_owned(), url.trim_end_matches('/').to_owned()))
}

#[cfg(test)]
pub(super) mod tests;
