//! The first administrator: made once, when there are no users, with a password in a file that only the daemon's uid reads.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

use super::passwords::Passwords;
use crate::domain::Ambient;
use crate::domain::page::PageRequest;
use crate::store::{self, Store};

/// The name of the first administrator.
pub const NAME: &str = "admin";

/// Creates the user `admin` with a random password when there are no users, and writes the password to `path` (0600, whole
/// or not at all) before the user exists. Gives whether it did.
pub async fn ensure_first_admin(store: &Store, ambient: &Ambient, path: &Path) -> anyhow::Result<bool> {
    if has_users(&mut *store.read().await?).await? {
        return Ok(false);
    }
    let passwords = Passwords::new(ambient.clone());
    let password = passwords.generate();
    let hash = passwords.hash(password.clone()).await?;
    let mut tx = store.begin().await?;
    if has_users(tx.sql()).await? {
        return Ok(false);
    }
    store::users::create(&mut tx, ambient, NAME, &hash, true).await?;
    write_secret(path, &password).with_context(|| format!("the first administrator's password cannot be written to {}", path.display()))?;
    tx.commit().await?;
    tracing::info!(user = NAME, path = %path.display(), "made the first administrator; the password is in the file");
    Ok(true)
}

async fn has_users(sql: &mut dyn store::Sql) -> store::Result<bool> {
    Ok(!store::users::list(sql, &PageRequest { limit: 1, after: None }).await?.items.is_empty())
}

fn write_secret(path: &Path, secret: &str) -> std::io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
    writeln!(file, "{secret}")?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    std::fs::File::open(folder)?.sync_all()
}
