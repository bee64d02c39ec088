//! SQLite: one writer, a few readers, WAL.
//!
//! Guarantees: what was committed survives `kill -9` and a loss of power (`synchronous=FULL`); a reader sees one
//! consistent state from its first query on; a transaction that is dropped is rolled back; no statement runs on a thread
//! of the async runtime; waiting for the writer or a reader ends after [`ACQUIRE`].
//! May import: `domain`.

mod connection;
mod placeholders;
mod schema;

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;

use self::connection::{Mode, Pool};
use super::migrations::{self, Migration};
use super::{Database, Result, Sql, Transaction};

/// How long a caller waits for the writer or for a reader.
pub const ACQUIRE: Duration = Duration::from_secs(10);
/// How many readers there are at most; they are opened when they are first needed.
pub const READERS: usize = 4;

/// A SQLite database that is open and migrated.
struct Sqlite {
    writer: Pool,
    readers: Pool,
    // Dropped last: the folder of a temporary database.
    _directory: Option<tempfile::TempDir>,
}

/// Opens the database in a file (made, with mode 0600, where there is none) and brings its schema up to date. Blocks;
/// call it at start. The errors name the file.
pub fn open(path: &Path) -> Result<Arc<dyn Database>> {
    Ok(Arc::new(Sqlite::open(path, Durability::Full, None, migrations::SQLITE)?))
}

/// A new, empty database in a temporary folder that is removed with it; it does not survive a loss of power. For tests.
pub fn temporary() -> Result<Arc<dyn Database>> {
    let directory = tempfile::tempdir().context("making a temporary folder")?;
    let path = directory.path().join("kubebyon.db");
    Ok(Arc::new(Sqlite::open(&path, Durability::None, Some(directory), migrations::SQLITE)?))
}

/// What a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// A loss of power.
    Full,
    /// The end of the process.
    None,
}

impl Sqlite {
    fn open(path: &Path, durability: Durability, directory: Option<tempfile::TempDir>, steps: &[Migration]) -> Result<Self> {
        create_private(path)?;
        let writer = Pool::new(path, Mode::Write(durability), 1);
        let readers = Pool::new(path, Mode::Read, READERS);
        writer.seed(|connection| schema::prepare(connection, path, steps))?;
        Ok(Self { writer, readers, _directory: directory })
    }
}

#[async_trait]
impl Database for Sqlite {
    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        Ok(Box::new(self.writer.acquire(ACQUIRE).await?))
    }

    async fn read(&self) -> Result<Box<dyn Sql>> {
        Ok(Box::new(self.readers.acquire(ACQUIRE).await?))
    }
}

/// Makes the file where it is absent, and lets nobody but its owner read or write it. SQLite gives its `-wal` and `-shm`
/// files the same mode.
fn create_private(path: &Path) -> Result<()> {
    let attempt = || -> std::io::Result<()> {
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if file.metadata()?.permissions().mode() & 0o7777 != 0o600 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    };
    attempt().with_context(|| format!("opening the database file {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests;
