//! `kubebyon api-token`.

use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::called;
use super::output::{self, Columns, Format};
use super::session::Session;
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
    /// List tokens: yours, or everybody's for an administrator
    List,
    /// Revoke a token
    Revoke {
        /// Its id
        id: ApiTokenId,
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
            output::note(&format!("token {} ({}), good until {}; its secret is shown this once:", token.name, token.id, token.expires_at));
            output::line(&secret);
            Ok(())
        }
        Command::List => {
            let tokens: Vec<ApiToken> = session.client.list("/api/v1/api-tokens", &[]).await?;
            output::list(session.format, &tokens, &format!("no tokens; make one with `{}`", called::command("api-token create NAME")))
        }
        Command::Revoke { id } => {
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

impl Columns for ApiToken {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["ID", "NAME", "ROLE", "PROJECT", "EXPIRES", "LAST USED"]
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        let now = Ambient::system().now();
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.role.as_str().to_owned(),
            self.project_id.map_or_else(|| "all".to_owned(), |id| id.to_string()),
            if self.expires_at <= now { "expired".to_owned() } else { output::span(self.expires_at.since(now)) },
            self.last_used_at.map_or_else(|| "never".to_owned(), |at| output::age(now, at)),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
