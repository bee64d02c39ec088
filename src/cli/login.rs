//! `kubebyon login` and `kubebyon logout`.

use anyhow::{Context as _, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, Target};
use super::credentials::Login;
use super::output;
use super::session::ClientArgs;

/// Sign in to a platform elsewhere, for the commands that follow.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kubebyon login https://kubebyon.example.com\n  kubebyon login https://kubebyon.example.com --user admin < password-file"
)]
pub struct LoginArgs {
    /// The platform's URL
    url: String,
    /// The user's name
    #[arg(long, default_value = "admin")]
    user: String,
}

/// Signs in.
pub async fn login(args: LoginArgs, client: &ClientArgs) -> anyhow::Result<()> {
    if !args.url.starts_with("https://") {
        bail!("{:?} is no URL to sign in at; it looks like https://kubebyon.example.com", args.url);
    }
    let password = super::user::password(&format!("Password of {} at {}: ", args.user, args.url), false)?;
    let target = Target {
        server: Some(args.url.clone()),
        token: None,
        ca_file: client.ca_file.clone(),
        socket: std::path::PathBuf::new(),
        local: false,
    };
    let body = json!({ "name": args.user, "password": password, "kind": "token" });
    let answer: Value = Client::new(&target)?.call(Method::POST, "/api/v1/sessions", &body).await?;
    let token = answer.get("token").and_then(Value::as_str).context("the server's answer has no token")?.to_owned();
    let ca_pem = client.ca_file.as_ref().map(std::fs::read_to_string).transpose()?;
    let path = Login { server: args.url.clone(), token, ca_pem }.save()?;
    output::note(&format!("signed in at {} as {}; kept in {}", args.url, args.user, path.display()));
    Ok(())
}

/// Ends the session and forgets it.
pub async fn logout() -> anyhow::Result<()> {
    let Some(login) = Login::load()? else {
        output::note("you are not signed in");
        return Ok(());
    };
    let ca = login.ca_pem.as_ref().map(|pem| -> anyhow::Result<_> {
        let mut file = tempfile::NamedTempFile::new()?;
        std::io::Write::write_all(&mut file, pem.as_bytes())?;
        Ok(file)
    });
    let ca = ca.transpose()?;
    let target = Target {
        server: Some(login.server.clone()),
        token: Some(login.token.clone()),
        ca_file: ca.as_ref().map(|file| file.path().to_owned()),
        socket: std::path::PathBuf::new(),
        local: false,
    };
    let ended = Client::new(&target)?.delete::<Value>("/api/v1/sessions/current", &[]).await;
    Login::forget()?;
    match ended {
        Ok(_) => output::note(&format!("signed out at {}", login.server)),
        Err(error) => output::note(&format!("the login is forgotten here; the server could not be told: {error:#}")),
    }
    Ok(())
}
