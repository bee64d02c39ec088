//! The login that `kubebyon login` keeps for later commands.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// A server and what signs us in there.
#[derive(Serialize, Deserialize)]
pub struct Login {
    /// The server's URL.
    pub server: String,
    /// A session's token.
    pub token: String,
    /// The authority to trust, when it is not one that the system knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

impl Login {
    fn path() -> anyhow::Result<PathBuf> {
        let base = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
            .context("neither XDG_CONFIG_HOME nor HOME is set, so there is no place for a login; use --server and --token")?;
        Ok(base.join("kubebyon").join("login.json"))
    }

    /// The login that was kept; `None` where there is none.
    pub fn load() -> anyhow::Result<Option<Self>> {
        let Ok(path) = Self::path() else { return Ok(None) };
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("{} cannot be read; remove it and sign in again", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Keeps this login, readable by its owner alone; whole or not at all.
    pub fn save(&self) -> anyhow::Result<PathBuf> {
        let path = Self::path()?;
        let folder = path.parent().context("the path of the login has no folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let draft = path.with_extension("json.new");
        let _ = std::fs::remove_file(&draft);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)?;
        Ok(path)
    }

    /// Forgets the login; gives whether there was one.
    pub fn forget() -> anyhow::Result<bool> {
        match std::fs::remove_file(Self::path()?) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
