//! `kubebyon api-token`.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};

use super::called;
use super::output::{self, Columns, Format};
use super::session::Session;
use crate::domain::project::Project;
use crate::domain::user::{ApiToken, Role};
use crate::domain::{Ambient, ApiTokenId};

/// Tokens for programs that use the API.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a token for yourself; its secret is shown once
    #[command(after_help = "Example: kubebyon api-token create ci --user alice --role member --in-project shop --ttl 30d")]
    Create {
        /// What it is for
        name: String,
        /// The most it may do; never more than you may
        #[arg(long)]
        role: Option<Role>,
        /// The one project it is good for; default: all of yours
        #[arg(long, value_name = "P")]
        in_project: Option<String>,
        /// The user it acts for; needed where nobody signed in, as on the platform's own host
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// How long it is good for
        #[arg(long, value_parser = output::parse_duration, default_value = "30d", value_name = "D")]
        ttl: Duration,
    },
    #[command(visible_alias = "ls")]
    /// List tokens: yours, or everybody's for an administrator
    List,
    /// Revoke a token
    Revoke {
        /// Its id, or its name where one token alone has that
        #[arg(value_name = "TOKEN")]
        token: String,
    },
}

/// Runs it.
pub async fn run(command: Command, session: &Session) -> anyhow::Result<()> {
    match command {
        Command::Create { name, role, in_project, user, ttl } => {
            let mut body = json!({ "name": name, "ttl_seconds": ttl.as_secs() });
            if let Some(role) = role {
                body["role"] = json!(role);
            }
            if let Some(project) = in_project {
                body["project"] = json!(project);
            }
            if let Some(user) = user {
                body["user"] = json!(user);
            }
            let mut made: Value = session.client.call(Method::POST, "/api/v1/api-tokens", &body).await?;
            if matches!(session.format, Format::Json | Format::Yaml) {
                return output::value(session.format, &made);
            }
            let secret = made.get("secret").and_then(Value::as_str).context("the server's answer has no secret")?.to_owned();
            let token: ApiToken = serde_json::from_value(made.get_mut("api_token").map(Value::take).unwrap_or_default())?;
            output::note(&format!(
                "token {} ({}), good until {}; its secret is shown this once:",
                token.name,
                token.id,
                output::moment(token.expires_at)
            ));
            output::line(&secret);
            Ok(())
        }
        Command::List => {
            let tokens: Vec<ApiToken> = session.client.list("/api/v1/api-tokens", &[]).await?;
            let table = matches!(session.format, Format::Table | Format::Wide);
            let projects = if table && tokens.iter().any(|token| token.project_id.is_some()) {
                session.client.list::<Project>("/api/v1/projects", &[]).await?
            } else {
                Vec::new()
            };
            let rows: Vec<Row> = tokens.into_iter().map(|token| Row::new(token, &projects)).collect();
            output::list(session.format, &rows, &format!("no tokens; make one with `{}`", called::command("api-token create NAME")))
        }
        Command::Revoke { token } => {
            let id = match token.parse::<ApiTokenId>() {
                Ok(id) => id,
                Err(_) => named(&token, &session.client.list("/api/v1/api-tokens", &[]).await?)?,
            };
            session.client.delete::<Value>(&format!("/api/v1/api-tokens/{id}"), &[]).await?;
            match session.format {
                Format::Json | Format::Yaml => output::value(session.format, &json!({ "id": id, "revoked": true })),
                _ => {
                    output::line(&id.to_string());
                    Ok(())
                }
            }
        }
    }
}

/// The one token of that name.
fn named(name: &str, tokens: &[ApiToken]) -> anyhow::Result<ApiTokenId> {
    let list = called::command("api-token list");
    let mut found = tokens.iter().filter(|token| token.name == name);
    match (found.next(), found.next()) {
        (Some(token), None) => Ok(token.id),
        (None, _) => bail!("{name:?} is neither the id nor the name of a token; see `{list}`"),
        (Some(_), Some(_)) => bail!("more than one token is called {name:?}; revoke it by its id, see `{list}`"),
    }
}

/// A token, and what its project is called.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    token: ApiToken,
    #[serde(skip)]
    project: String,
}

impl Row {
    fn new(token: ApiToken, projects: &[Project]) -> Self {
        let name = |id| projects.iter().find(|project| project.id == id).map_or_else(|| id.to_string(), |project| project.name.clone());
        let project = token.project_id.map_or_else(|| "all".to_owned(), name);
        Self { token, project }
    }
}

impl Columns for Row {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["ID", "NAME", "ROLE", "PROJECT", "EXPIRES", "LAST USED"]
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        let (now, token) = (Ambient::system().now(), &self.token);
        vec![
            token.id.to_string(),
            token.name.clone(),
            token.role.as_str().to_owned(),
            self.project.clone(),
            if token.expires_at <= now { "expired".to_owned() } else { output::span(token.expires_at.since(now)) },
            token.last_used_at.map_or_else(|| "never".to_owned(), |at| output::age(now, at)),
        ]
    }

    fn name(&self) -> String {
        self.token.id.to_string()
    }
}
