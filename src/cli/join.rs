//! `kubebyon join`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context as _, bail};

use super::output::{self, Format};
use crate::assets::progress::{self, Meter, ProgressSink};
use crate::domain::Ambient;
use crate::domain::join::TokenContent;
use crate::node::join::{self, End, Options, Unfit};
use crate::node::layout::Layout;
use crate::node::preflight::{self, Finding, Severity, Wanted};
use crate::node::show::Show;

/// Make this machine a node of a cluster; as root.
#[derive(Debug, clap::Args)]
#[command(after_help = "The token comes from `kubebyon join-token create CLUSTER`, which prints the whole line to run here.\n\
    It may also stand in a file (--token-file) or in KUBEBYON_JOIN_TOKEN, as cloud-init has it.\n\n\
    Examples:\n  kubebyon join kbj1_…\n  kubebyon join kbj1_… --name worker-1 --label team=web --taint dedicated=gpu:NoSchedule\n  \
    kubebyon join --token-file /root/token --registry-mirror docker.io=https://mirror.example.com\n  \
    kubebyon join --dry-run                     is this machine fit for it, and what would be done?\n\n\
    A join that was cut goes on by the same command and uses nothing of its token up. `kubebyon leave` is its inverse.")]
pub struct JoinArgs {
    /// The token
    #[arg(env = "KUBEBYON_JOIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    join_token: Option<String>,
    /// Read the token from this file; `-` is standard input
    #[arg(long, value_name = "F")]
    token_file: Option<PathBuf>,
    /// The node's name; default: the host name
    #[arg(long, value_name = "N")]
    name: Option<String>,
    /// A label of the node, such as team=web; may be given several times
    #[arg(long = "label", short = 'l', value_name = "K=V")]
    labels: Vec<String>,
    /// A taint of the node, such as dedicated=gpu:NoSchedule; may be given several times
    #[arg(long = "taint", value_name = "K=V:EFFECT")]
    taints: Vec<String>,
    /// The machine's address to use; default: that of the default route
    #[arg(long, value_name = "IP")]
    node_ip: Option<IpAddr>,
    /// A mirror of a registry, such as docker.io=https://mirror.example.com; may be given several times, tried in order
    #[arg(long = "registry-mirror", value_name = "REG=URL")]
    registry_mirrors: Vec<String>,
    /// Take the place of a node of that name which is not Ready
    #[arg(long)]
    replace: bool,
    /// Use a containerd of your own, by its socket
    #[arg(long, value_name = "PATH")]
    containerd_socket: Option<PathBuf>,
    /// Write no unit: your own supervisor runs `kubebyon --role=node`
    #[arg(long)]
    no_service: bool,
    /// Take programs out of this tar of the platform's /assets instead of fetching them
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Look and tell what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Install no packages of the distribution
    #[arg(long)]
    no_packages: bool,
    /// Do not wait until the node is verified
    #[arg(long)]
    no_verify: bool,
}

/// Makes this machine a node.
pub async fn run(args: JoinArgs, format: Format) -> anyhow::Result<ExitCode> {
    let (layout, ambient) = (Layout::default(), Ambient::system());
    let token = token(&args)?;
    let dry_run = args.dry_run;
    let wanted = Wanted {
        name: args.name.clone().unwrap_or_default(),
        node_ip: args.node_ip,
        service: !args.no_service,
        packages: !args.no_packages,
        containerd_socket: args.containerd_socket.as_ref().map(|path| path.display().to_string()),
        ..Wanted::default()
    };
    let options = token.map(|token| options(args, token)).transpose()?;
    if dry_run {
        let preview =
            join::preview(options.as_ref().map(|options| (&options.token.server[..], &options.token.trust)), wanted, &layout, &ambient)
                .await?;
        return print_preview(&preview, format);
    }
    let Some(options) = options else {
        bail!("a token is needed: make one with `kubebyon join-token create CLUSTER`, which prints the whole line to run here")
    };
    if !nix::unistd::geteuid().is_root() {
        bail!("becoming a node needs root: run the same command as root, with `sudo` before it");
    }
    let terminal = Terminal::new();
    match join::run(&options, &layout, &ambient, &terminal).await {
        Ok(end) => told(&end, format),
        Err(error) => Err(match error.downcast_ref::<Unfit>() {
            Some(unfit) => {
                let errors = unfit.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
                let them = if errors == 1 { "mend what is marked FAIL above" } else { "mend what is marked FAIL above, each" };
                anyhow::anyhow!("{unfit}: {them}, and run the same command again")
            }
            None => error,
        }),
    }
}

fn token(args: &JoinArgs) -> anyhow::Result<Option<TokenContent>> {
    const MAX: u64 = 16 * 1024;
    // The environment may hold another; a file that was named is meant.
    let text = match (&args.join_token, &args.token_file) {
        (Some(token), None) => token.clone(),
        (_, Some(file)) => {
            let reader: Box<dyn std::io::Read> = if file.as_os_str() == "-" {
                Box::new(std::io::stdin())
            } else {
                Box::new(std::fs::File::open(file).with_context(|| format!("cannot read the token from {}", file.display()))?)
            };
            let mut text = String::new();
            reader.take(MAX).read_to_string(&mut text).with_context(|| format!("cannot read the token from {}", file.display()))?;
            text
        }
        (None, None) => return Ok(None),
    };
    // The field's name adds nothing: the message speaks of the token.
    TokenContent::parse(&text).map(Some).map_err(|invalid| anyhow::anyhow!("{}", invalid.message))
}

fn options(args: JoinArgs, token: TokenContent) -> anyhow::Result<Options> {
    let mut mirrors: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in &args.registry_mirrors {
        let (registry, url) = join::parse_mirror(text)?;
        mirrors.entry(registry).or_default().push(url);
    }
    Ok(Options {
        token,
        name: args.name,
        labels: args.labels.iter().map(|text| join::parse_label(text)).collect::<anyhow::Result<_>>()?,
        taints: args.taints.iter().map(|text| join::parse_taint(text)).collect::<anyhow::Result<_>>()?,
        node_ip: args.node_ip,
        registry_mirrors: mirrors,
        replace: args.replace,
        containerd_socket: args.containerd_socket,
        service: !args.no_service,
        bundle: args.bundle,
        packages: !args.no_packages,
        verify: !args.no_verify,
    })
}

fn told(end: &End, format: Format) -> anyhow::Result<ExitCode> {
    let (name, state, words) = match end {
        End::Verified { name, cluster } => (name, "verified", format!("{name} is verified: pods of cluster {cluster} run here")),
        End::WaitingForNetwork { name } => {
            (name, "waiting-for-cni", format!("{name} joined, waiting for your CNI: install it, then run `kubebyon doctor`"))
        }
        End::Joined { name } => (name, "joined", format!("{name} joined; `kubebyon status` tells how it is")),
        End::Installed { name, command } => (name, "installed", format!("{name} is installed; have your supervisor run: {command}")),
    };
    match format {
        Format::Json | Format::Yaml => output::value(format, &serde_json::json!({ "name": name, "state": state }))?,
        Format::Name => output::line(name),
        Format::Table | Format::Wide => output::line(&words),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_preview(preview: &join::Preview, format: Format) -> anyhow::Result<ExitCode> {
    if matches!(format, Format::Json | Format::Yaml) {
        let steps: Vec<_> = preview.steps.iter().map(|step| serde_json::json!({ "step": step.name(), "what": step.to_string() })).collect();
        output::value(format, &serde_json::json!({ "findings": preview.findings, "steps": steps }))?;
    } else {
        if preview.findings.is_empty() {
            output::line("This machine is fit to be a node.");
        }
        preview.findings.iter().for_each(|finding| output::line(&finding_lines(finding)));
        output::line("\nA join would, after it was given a certificate:");
        preview.steps.iter().for_each(|step| output::line(&format!("  {:<9} {step}", step.name())));
    }
    Ok(if preflight::stops(&preview.findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A finding as `doctor` shows one.
pub fn finding_lines(finding: &Finding) -> String {
    let mark = match finding.severity {
        Severity::Warning => "warn",
        Severity::Error => "FAIL",
    };
    format!("{mark}  {:<12} {}\n      {:<12} → {}", finding.check, finding.message, "", finding.remedy)
}

/// Shows steps on standard error, with bars where that is a terminal.
pub struct Terminal {
    sink: Box<dyn ProgressSink>,
    meter: Mutex<Option<(String, Box<dyn Meter>)>>,
}

impl Terminal {
    /// On standard error.
    pub fn new() -> Self {
        Self { sink: progress::for_stderr(), meter: Mutex::default() }
    }
}

impl Show for Terminal {
    fn step(&self, step: &str, message: &str) {
        self.sink.step(&format!("{step:<10} {message}"));
    }

    fn note(&self, message: &str) {
        self.sink.step(&format!("{:<10} {message}", ""));
    }

    fn finding(&self, finding: &Finding) {
        self.sink.step(&finding_lines(finding));
    }

    fn transfer(&self, label: &str, done: u64, total: u64) {
        let mut meter = self.meter.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if meter.as_ref().is_none_or(|(of, _)| of != label) {
            *meter = Some((label.to_owned(), self.sink.meter(label, Some(total))));
        }
        if let Some((_, meter)) = meter.as_ref() {
            meter.at(done);
        }
        if done >= total {
            *meter = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: JoinArgs,
    }

    fn parse(args: &[&str]) -> JoinArgs {
        Alone::parse_from([&["join"], args].concat()).args
    }

    #[test]
    fn a_token_comes_from_the_line_or_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "kbj1_cut\n").unwrap();
        for args in [vec!["kbj1_cut"], vec!["--token-file", file.to_str().unwrap()]] {
            assert!(token(&parse(&args)).unwrap_err().to_string().contains("not whole"));
        }
        assert!(token(&parse(&["--dry-run"])).unwrap().is_none());
        assert!(token(&parse(&["--token-file", "/nowhere/token"])).unwrap_err().to_string().contains("/nowhere/token"));
    }

    #[test]
    fn flags_that_are_none_are_named() {
        for (text, good) in
            [("docker.io=https://m", true), ("docker.io=m", false), ("=https://m", false), ("../x=https://m", false), ("x", false)]
        {
            assert_eq!(join::parse_mirror(text).is_ok(), good, "{text}");
        }
        let taint = join::parse_taint("dedicated=gpu:NoSchedule").unwrap();
        assert_eq!((taint.key.as_str(), taint.value.as_str(), taint.effect.as_str()), ("dedicated", "gpu", "NoSchedule"));
        assert!(join::parse_taint("dedicated").is_err() && join::parse_label("team").is_err());
    }
}
