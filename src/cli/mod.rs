//! The command line: the daemon, and the commands that talk to one. It alone wires everything.
//!
//! One file a command. Exit codes: 0 well, 1 an error (told on stderr, with what to do), 2 wrong usage, 64 wrong configuration.

mod api_token;
pub mod assets;
mod called;
mod client;
mod cluster;
mod config;
mod credentials;
mod daemon;
mod doctor;
mod doctor_node;
mod follow;
mod job;
mod join;
mod kubeconfig;
mod leave;
mod login;
mod output;
mod pod_check;
mod project;
mod session;
mod settings;
mod status;
mod user;
mod version;
mod versions;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::{Config, ConfigErrors, EXIT_CODE, LoadOptions, Loaded};
use session::{ClientArgs, Session};

/// Hands out Kubernetes clusters to tenants who bring their own nodes.
///
/// Without a command it is the daemon: API, front door, workers and control planes of this host.
#[derive(Debug, Parser)]
#[command(name = "kubebyon", version, max_term_width = 120)]
#[command(
    after_help = "First steps:\n  systemctl start kubebyon                 the platform\n  kubebyon doctor                          is this machine fit for it?\n  \
    kubebyon cluster create demo --wait      a cluster\n  kubebyon kubeconfig demo --merge         and the way into it"
)]
struct Cli {
    /// The configuration file; default: /etc/kubebyon/kubebyon.yaml, if it is there
    #[arg(long, global = true, value_name = "F", help_heading = "Platform", hide_short_help = true)]
    config: Option<PathBuf>,
    /// Where everything is kept; default: /var/lib/kubebyon
    #[arg(long, global = true, value_name = "D", help_heading = "Platform", hide_short_help = true)]
    data_dir: Option<PathBuf>,
    /// What the daemon does here, comma-separated: api, worker, agent
    #[arg(long, value_name = "ROLES")]
    role: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Clusters
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Hand out, list and revoke kubeconfigs
    Kubeconfig(kubeconfig::KubeconfigArgs),
    /// Projects
    #[command(subcommand)]
    Project(project::Command),
    /// The work behind clusters
    #[command(subcommand)]
    Job(job::Command),
    /// What an administrator changes while the platform runs
    #[command(subcommand)]
    Settings(settings::Command),
    /// Local users and their roles
    #[command(subcommand)]
    User(user::Command),
    /// Tokens for programs that use the API
    #[command(subcommand)]
    ApiToken(api_token::Command),
    /// Sign in to a platform elsewhere; the password is asked for, or read from standard input
    Login(login::LoginArgs),
    /// Sign out
    Logout,
    /// Make this machine a node of a cluster
    Join(join::JoinArgs),
    /// Take this machine out of its cluster, and undo what join did
    Leave(leave::LeaveArgs),
    /// How this machine's node is
    Status,
    /// Check this machine, and say what to mend
    Doctor(doctor::DoctorArgs),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(config::Command),
    /// The programs of Kubernetes on this machine
    #[command(subcommand)]
    Assets(assets::Command),
    /// Print the version
    Version,
    /// Print the completions of a shell, to be sourced
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the OpenAPI document of the API
    Openapi,
    /// What a pod finds of its cluster; run by the platform in a pod of its own
    #[command(hide = true)]
    PodCheck,
}

/// Parses the command line, runs it, and tells how it ended.
pub fn main() -> ExitCode {
    // What the whole program's TLS uses; installing it twice is the only failure, and it is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let matches = Cli::command().get_matches();
    called::remember(std::env::args_os().next().as_deref(), &matches);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            output::note(&format!("error: {error:#}"));
            if error.is::<ConfigErrors>() { ExitCode::from(EXIT_CODE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let load = LoadOptions { file: cli.config.clone(), environment: environment(), flags: flags(&cli) };
    let Some(command) = cli.command else { return daemon::run(&load) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(client_command(command, &cli.client, cli.data_dir, &load))
}

async fn client_command(command: Command, client: &ClientArgs, data_dir: Option<PathBuf>, load: &LoadOptions) -> anyhow::Result<ExitCode> {
    let format = client.output;
    match command {
        Command::Version => version::run(format)?,
        Command::PodCheck => pod_check::run().await?,
        Command::Openapi => output::line(crate::api::openapi::document().trim_end()),
        Command::Completions { shell } => completions(shell),
        Command::Config(command) => config::run(&command, load, format)?,
        Command::Login(args) => login::login(args, client).await?,
        Command::Logout => login::logout().await?,
        Command::Join(args) => return join::run(args, format).await,
        Command::Leave(args) => return leave::run(args, format).await,
        Command::Status => return status::run(format).await,
        Command::Doctor(args) => return doctor::run(args, &lenient(load), format).await,
        Command::Assets(command) => assets::run(command, &assets_settings(&lenient(load).config), format).await?,
        command => {
            let local = data_dir.is_some() || load.file.is_some();
            let data_dir = data_dir.unwrap_or_else(|| lenient(load).config.data_dir);
            with_session(command, &Session::new(client, &data_dir, local)?).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions of a shell.
fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kubebyon", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end());
}

async fn with_session(command: Command, session: &Session) -> anyhow::Result<()> {
    match command {
        Command::Cluster(command) => cluster::run(command, session).await,
        Command::Kubeconfig(args) => kubeconfig::run(args, session).await,
        Command::Project(command) => project::run(command, session).await,
        Command::Job(command) => job::run(command, session).await,
        Command::Settings(command) => settings::run(command, session).await,
        Command::User(command) => user::run(command, session).await,
        Command::ApiToken(command) => api_token::run(command, session).await,
        _ => unreachable!("the commands without a session are handled before"),
    }
}

/// The configuration for commands that only want to know where things are: a wrong one does not stop `doctor`.
fn lenient(load: &LoadOptions) -> Loaded {
    Config::load(load).unwrap_or_else(|errors| {
        output::note(&format!("the configuration is wrong, so its defaults are used here:\n{errors}"));
        let flags = load.flags.clone();
        Config::load(&LoadOptions { file: Some("/dev/null".into()), flags, ..LoadOptions::default() }).unwrap_or_else(|_| {
            Config::load(&LoadOptions { file: Some("/dev/null".into()), ..LoadOptions::default() }).expect("the defaults are right")
        })
    })
}

/// What commands on programs need to know.
fn assets_settings(config: &Config) -> crate::assets::Settings {
    crate::assets::Settings {
        dir: config.assets_dir(),
        mirror: config.assets.mirror.clone().map_or_else(crate::assets::Mirror::upstream, crate::assets::Mirror::at),
        kubernetes_version: config.kubernetes_version,
    }
}

fn environment() -> Vec<(String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

fn flags(cli: &Cli) -> Vec<(String, String)> {
    let data_dir = cli.data_dir.as_ref().map(|dir| ("data_dir".to_owned(), dir.display().to_string()));
    let roles = cli.role.as_ref().map(|roles| ("roles".to_owned(), roles.clone()));
    data_dir.into_iter().chain(roles).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
