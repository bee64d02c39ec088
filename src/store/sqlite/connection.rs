//! Connections: a pool hands them out one transaction at a time and runs their statements on blocking threads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::{Error, Result, Row, Sql, Transaction, Value};
use super::{Durability, placeholders, schema};

/// How long SQLite waits for a lock that another process holds.
const BUSY: Duration = Duration::from_secs(5);
/// More statements than the store has, so that each is parsed once for each connection.
const STATEMENTS: usize = 256;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Write(Durability),
    Read,
}

/// Connections of one kind: at most so many, each held by one transaction at a time.
pub(super) struct Pool {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
}

struct Shared {
    path: PathBuf,
    mode: Mode,
    idle: Mutex<Vec<Arc<Mutex<Open>>>>,
}

/// An open connection and the transaction that holds it.
struct Open {
    connection: Connection,
    /// The rewritten text of each statement, by where its own text stands.
    texts: HashMap<(usize, usize), Arc<str>>,
    /// Grows with each transaction: a statement of one that has ended finds another number and does nothing.
    transaction: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// BEGIN comes with the first statement.
    Fresh,
    Begun,
    /// A statement failed: nothing but a rollback may follow, as in other databases.
    Failed,
}

impl Pool {
    pub(super) fn new(path: &Path, mode: Mode, size: usize) -> Self {
        let shared = Shared { path: path.to_owned(), mode, idle: Mutex::new(Vec::new()) };
        Self { shared: Arc::new(shared), permits: Arc::new(Semaphore::new(size)) }
    }

    /// Opens the first connection at once and prepares the database through it.
    pub(super) fn seed(&self, prepare: impl FnOnce(&mut Connection) -> Result<()>) -> Result<()> {
        let mut open = self.shared.open()?;
        prepare(&mut open.connection)?;
        lock(&self.shared.idle).push(Arc::new(Mutex::new(open)));
        Ok(())
    }

    /// A transaction on a connection that nobody else holds, in the order of asking.
    pub(super) async fn acquire(&self, wait: Duration) -> Result<Held> {
        let what = if self.shared.mode == Mode::Read { "reader" } else { "writer" };
        let permit = tokio::time::timeout(wait, Arc::clone(&self.permits).acquire_owned())
            .await
            .map_err(|_| Error::Busy { what, seconds: wait.as_secs() })?
            .map_err(|_| anyhow!("the database is closed"))?;
        let idle = lock(&self.shared.idle).pop();
        let slot = if let Some(slot) = idle {
            slot
        } else {
            let shared = Arc::clone(&self.shared);
            Arc::new(Mutex::new(on_blocking_thread(move || shared.open()).await?))
        };
        let transaction = lock(&slot).transaction;
        Ok(Held { lease: Some(Lease { shared: Arc::clone(&self.shared), slot, transaction, _permit: permit }) })
    }
}

impl Shared {
    fn open(&self) -> Result<Open> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(|e| self.error(e))?;
        let pragmas = || -> rusqlite::Result<()> {
            connection.busy_timeout(BUSY)?;
            connection.pragma_update(None, "trusted_schema", false)?;
            connection.pragma_update(None, "foreign_keys", true)?;
            connection.pragma_update(None, "temp_store", "memory")?;
            match self.mode {
                Mode::Write(durability) => {
                    connection.pragma_update(None, "journal_mode", "wal")?;
                    connection.pragma_update(None, "synchronous", if durability == Durability::Full { "full" } else { "off" })?;
                    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
                }
                Mode::Read => {
                    connection.pragma_update(None, "query_only", true)?;
                    // In KiB: readers are several, and the pages are in the kernel's cache anyway.
                    connection.pragma_update(None, "cache_size", -1024)?;
                }
            }
            Ok(())
        };
        pragmas().map_err(|e| self.error(e))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(Open { connection, texts: HashMap::new(), transaction: 0, state: State::Fresh })
    }

    /// SQLite's error with what it means and what to do.
    fn error(&self, error: rusqlite::Error) -> Error {
        let code = error.sqlite_error_code();
        let may_be_full = matches!(code, Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen));
        if code == Some(ErrorCode::DiskFull) || (may_be_full && no_space_beside(&self.path)) {
            return Error::DiskFull(anyhow::Error::new(error).context(self.path.display().to_string()));
        }
        let advice = match code {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => return schema::damaged(&self.path, error),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                format!("another process holds {}: is a second daemon running on this data folder?", self.path.display())
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                format!("{} cannot be opened for writing: check its owner and mode", self.path.display())
            }
            Some(ErrorCode::SystemIoFailure) => format!("reading or writing {} failed: check the disk", self.path.display()),
            Some(ErrorCode::ConstraintViolation) => "a row breaks a rule of the schema, or refers to one that is gone".to_owned(),
            _ => return Error::Database(error.into()),
        };
        Error::Database(anyhow::Error::new(error).context(advice))
    }
}

/// Whether nothing can be written beside the file. SQLite says `SQLITE_FULL` of writes; where it makes or maps its `-wal`
/// and `-shm` files, an I/O error is all that it says.
fn no_space_beside(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    nix::sys::statvfs::statvfs(folder).is_ok_and(|s| s.blocks_available() == 0 || (s.files() > 0 && s.files_available() == 0))
}

impl Open {
    fn begin(&mut self, mode: Mode) -> rusqlite::Result<()> {
        if self.state == State::Fresh {
            let begin = if mode == Mode::Read { "begin deferred" } else { "begin immediate" };
            self.connection.prepare_cached(begin)?.execute([])?;
            self.state = State::Begun;
        }
        Ok(())
    }

    fn text(&mut self, sql: &'static str) -> Arc<str> {
        let place = (sql.as_ptr().addr(), sql.len());
        Arc::clone(self.texts.entry(place).or_insert_with(|| placeholders::rewrite(sql).into()))
    }

    fn execute(&mut self, sql: &'static str, parameters: &[Value]) -> rusqlite::Result<u64> {
        let text = self.text(sql);
        let changed = self.connection.prepare_cached(&text)?.execute(rusqlite::params_from_iter(parameters))?;
        Ok(changed as u64)
    }

    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> rusqlite::Result<Vec<Row>> {
        let text = self.text(sql);
        let mut statement = self.connection.prepare_cached(&text)?;
        let columns = statement.column_count();
        let mut cursor = statement.query(rusqlite::params_from_iter(parameters))?;
        let mut rows = Vec::new();
        while let Some(row) = cursor.next()? {
            rows.push(Row((0..columns).map(|column| read(row.get_ref(column)?)).collect::<rusqlite::Result<_>>()?));
        }
        Ok(rows)
    }
}

fn read(value: ValueRef<'_>) -> rusqlite::Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(v) => Value::Int(v),
        ValueRef::Text(v) => Value::Text(std::str::from_utf8(v)?.to_owned()),
        ValueRef::Blob(v) => Value::Bytes(v.to_owned()),
        ValueRef::Real(_) => return Err(rusqlite::Error::InvalidQuery),
    })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Text(v) => ValueRef::Text(v.as_bytes()),
            Self::Int(v) => ValueRef::Integer(*v),
            Self::Bool(v) => ValueRef::Integer(i64::from(*v)),
            Self::Bytes(v) => ValueRef::Blob(v),
        }))
    }
}

/// A connection for the length of a transaction. Ending it rolls back what was not committed and gives it back.
struct Lease {
    shared: Arc<Shared>,
    slot: Arc<Mutex<Open>>,
    transaction: u64,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut open = lock(&self.slot);
        open.transaction += 1;
        open.state = State::Fresh;
        if !open.connection.is_autocommit()
            && let Err(error) = open.connection.execute_batch("rollback")
        {
            tracing::warn!(%error, "a rollback failed; its connection is closed");
            return;
        }
        drop(open);
        lock(&self.shared.idle).push(Arc::clone(&self.slot));
    }
}

/// A transaction.
pub(super) struct Held {
    lease: Option<Lease>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        // Rolling back touches no disk, so that it may happen here, unless a statement whose caller is gone still runs.
        let busy = lease.slot.try_lock().is_err();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if busy => drop(runtime.spawn_blocking(move || drop(lease))),
            _ => drop(lease),
        }
    }
}

impl Held {
    /// Runs a piece of this transaction on a blocking thread, BEGIN before the first.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Open) -> rusqlite::Result<T> + Send + 'static) -> Result<T> {
        let lease = self.lease.as_ref().ok_or_else(|| anyhow!("the transaction has ended"))?;
        let (shared, slot, transaction) = (Arc::clone(&lease.shared), Arc::clone(&lease.slot), lease.transaction);
        on_blocking_thread(move || {
            let mut open = lock(&slot);
            if open.transaction != transaction {
                return Err(anyhow!("the transaction has ended").into());
            }
            if open.state == State::Failed {
                return Err(anyhow!("an earlier statement of this transaction failed").into());
            }
            let done = open.begin(shared.mode).and_then(|()| work(&mut open));
            done.map_err(|error| {
                open.state = State::Failed;
                shared.error(error)
            })
        })
        .await
    }
}

#[async_trait]
impl Sql for Held {
    async fn execute(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<u64> {
        self.run(move |open| open.execute(sql, &parameters)).await
    }

    async fn query(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<Vec<Row>> {
        self.run(move |open| open.query(sql, &parameters)).await
    }
}

#[async_trait]
impl Transaction for Held {
    async fn commit(self: Box<Self>) -> Result<()> {
        self.run(|open| open.connection.prepare_cached("commit")?.execute([]).map(drop)).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::Database(anyhow::Error::new(e).context("a statement was cut short")))?
}
