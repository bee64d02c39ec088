//! `kubebyon user`.

use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::called;
use super::output::{self, Columns, Format};
use super::session::Session;
use crate::domain::Ambient;
use crate::domain::user::{Role, User};

/// Local users and their roles.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a user; without --password-stdin a password is made and shown once
    Create {
        /// The name for sign-in
        name: String,
        /// Read the password from standard input
        #[arg(long)]
        password_stdin: bool,
        /// May administer the platform itself: every project, users, settings
        #[arg(long)]
        platform_admin: bool,
    },
    /// List users
    #[command(visible_alias = "ls")]
    List,
    /// Show a user
    Get {
        /// The name or id
        user: String,
    },
    /// Give a role in the project that --project names, or take it away with `none`
    #[command(after_help = "Example: kubebyon user role alice member --project shop")]
    Role {
        /// The name or id
        user: String,
        /// viewer, member, admin, or none
        #[arg(value_parser = ["viewer", "member", "admin", "none"])]
        role: String,
    },
    /// Set a new password; it is asked for, or read from standard input
    Password {
        /// The name or id
        user: String,
    },
    /// Bar a user from signing in; sessions end at once
    Disable {
        /// The name or id
        user: String,
    },
    /// Let a user sign in again
    Enable {
        /// The name or id
        user: String,
    },
    /// Delete a user with sessions and tokens
    #[command(visible_alias = "rm")]
    Delete {
        /// The name or id
        user: String,
        /// Show what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs it.
pub async fn run(command: Command, session: &Session) -> anyhow::Result<()> {
    match command {
        Command::Create { name, password_stdin, platform_admin } => create(name, password_stdin, platform_admin, session).await,
        Command::List => {
            let users: Vec<User> = session.client.list("/api/v1/users", &[]).await?;
            output::list(session.format, &users, "no users")
        }
        Command::Get { user } => output::one(session.format, &find(&user, session).await?),
        Command::Role { user, role } => {
            let role = role.parse::<Role>().ok();
            let change = json!({ "roles": [{ "project": session.project, "role": role }] });
            change_user(&user, &change, session).await.map_err(|error| without_paths(error, &session.project))
        }
        Command::Password { user } => {
            let password = password(&format!("New password of {user}: "), true)?;
            change_user(&user, &json!({ "password": password }), session).await
        }
        Command::Disable { user } => change_user(&user, &json!({ "disabled": true }), session).await,
        Command::Enable { user } => change_user(&user, &json!({ "disabled": false }), session).await,
        Command::Delete { user, dry_run } => {
            let user = find(&user, session).await?;
            if dry_run {
                output::note("dry run: nothing was deleted; this user would go, with sessions and tokens:");
                return output::one(session.format, &user);
            }
            session.client.delete::<Value>(&format!("/api/v1/users/{}", user.id), &[]).await?;
            match session.format {
                Format::Table | Format::Wide => output::line(&format!("user {} is deleted", user.name)),
                format => output::one(format, &user)?,
            }
            Ok(())
        }
    }
}

async fn create(name: String, password_stdin: bool, platform_admin: bool, session: &Session) -> anyhow::Result<()> {
    let mut body = json!({ "name": name, "platform_admin": platform_admin });
    if password_stdin {
        body["password"] = json!(read_password()?);
    }
    let mut created: Value = session.client.call(Method::POST, "/api/v1/users", &body).await?;
    if matches!(session.format, Format::Json | Format::Yaml) {
        return output::value(session.format, &created);
    }
    let password = created.get("password").and_then(Value::as_str).map(str::to_owned);
    let user = created.get_mut("user").map(Value::take).context("the server's answer names no user")?;
    output::one(session.format, &serde_json::from_value::<User>(user)?)?;
    if let Some(password) = password {
        output::note(&format!("password, shown this once: {password}"));
    }
    let project = if called::names_project() { "" } else { " --project PROJECT" };
    output::note(&format!("give a role with `{}`", called::command(&format!("user role {name} member{project}"))));
    Ok(())
}

async fn find(reference: &str, session: &Session) -> anyhow::Result<User> {
    let users: Vec<User> = session.client.list("/api/v1/users", &[]).await?;
    users
        .into_iter()
        .find(|user| user.name == reference || user.id.to_string() == reference)
        .with_context(|| format!("there is no user {reference:?}; see `{}`", called::command("user list")))
}

async fn change_user(reference: &str, change: &Value, session: &Session) -> anyhow::Result<()> {
    let user = find(reference, session).await?;
    let changed: User = session.client.call(Method::PATCH, &format!("/api/v1/users/{}", user.id), change).await?;
    output::one(session.format, &changed)
}

/// A refusal in the words of the command line: the fields of a request's body are no matter of the person's.
fn without_paths(error: anyhow::Error, project: &str) -> anyhow::Error {
    let Some(refused) = error.downcast_ref::<super::client::Refused>() else { return error };
    if refused.message.contains("no project") {
        let list = called::command("project list");
        return anyhow::anyhow!("there is no project {project:?}; see `{list}`, and name another with --project");
    }
    anyhow::anyhow!("{}", refused.message.replace("roles[0].", "").replace("roles[0]", "role"))
}

/// A password: asked for without echo at a terminal (twice for a new one), else one line of standard input.
pub fn password(prompt: &str, new: bool) -> anyhow::Result<String> {
    if !std::io::stdin().is_terminal() {
        return read_password();
    }
    let ask = |prompt: &str| rpassword::prompt_password(prompt).context("the password cannot be read from the terminal");
    let given = ask(prompt)?;
    if given.is_empty() {
        bail!("no password was given");
    }
    if new && ask("The same again: ")? != given {
        bail!("the two are not the same; nothing was changed");
    }
    Ok(given)
}

/// A password from standard input: one line.
fn read_password() -> anyhow::Result<String> {
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        bail!("--password-stdin reads the password from standard input, and that is a terminal: add `< FILE`");
    }
    let mut text = String::new();
    stdin.by_ref().take(4096).read_to_string(&mut text)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.contains('\n') {
        bail!("standard input must hold the password as one line");
    }
    Ok(password.to_owned())
}

impl Columns for User {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["NAME", "ROLES", "STATE", "AGE"];
        if wide {
            titles.push("ID");
        }
        titles
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let mut roles: Vec<String> = self.roles.iter().map(|r| format!("{}:{}", r.project, r.role.as_str())).collect();
        if self.platform_admin {
            roles.insert(0, "platform admin".to_owned());
        }
        let state = if self.disabled { "disabled" } else { "active" };
        let mut cells = vec![self.name.clone(), roles.join(", "), state.to_owned(), output::age(Ambient::system().now(), self.created_at)];
        cells.extend(wide.then(|| self.id.to_string()));
        cells
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::Refused;

    #[test]
    fn refusals_of_a_role_name_no_fields_of_the_request() {
        let refused = |message: &str| Refused { status: reqwest::StatusCode::UNPROCESSABLE_ENTITY, message: message.to_owned() }.into();
        let said = without_paths(refused("roles[0].project: there is no project \"shop\""), "shop").to_string();
        assert!(said.starts_with("there is no project \"shop\"") && said.contains("--project"), "{said}");
        assert_eq!(without_paths(refused("roles[0].role: no"), "shop").to_string(), "role: no");
    }
}
