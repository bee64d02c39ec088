//! The schema at open: what file this is, and the steps that bring it to this release's version.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rusqlite::{Connection, TransactionBehavior};

use super::super::migrations::Migration;
use super::super::{Error, Result};

/// Marks the file as KubeBYON's ("KBYN").
const APPLICATION_ID: i64 = 0x4b42_594e;

/// Checks that the file is whole and KubeBYON's, and applies the steps that it lacks, all or none. A file that holds
/// an older schema is copied beside itself first, as `<file>.schema-<version>.bak`.
pub(super) fn prepare(connection: &mut Connection, path: &Path, steps: &[Migration]) -> Result<()> {
    let verdict: String = connection.query_row("pragma quick_check(1)", [], |row| row.get(0)).map_err(|e| damaged(path, e))?;
    if verdict != "ok" {
        return Err(damaged(path, anyhow!(verdict)));
    }
    let found = version(connection).map_err(|e| damaged(path, e))?;
    let known = steps.last().map_or(0, |step| step.version);
    if found > known {
        return Err(Error::NewerSchema { found, known });
    }
    if found == known {
        return Ok(());
    }
    if found > 0 {
        back_up(connection, path, found)?;
    } else {
        refuse_foreign(connection, path)?;
    }
    apply(connection, found, steps).with_context(|| format!("bringing the schema of {} to version {known}", path.display()))?;
    Ok(())
}

/// The error of a file that cannot be read as a database.
pub(super) fn damaged(path: &Path, cause: impl Into<anyhow::Error>) -> Error {
    Error::Database(cause.into().context(format!(
        "{0} is damaged or no SQLite database: restore it from a backup, or move it away together with {0}-wal and {0}-shm to begin empty",
        path.display()
    )))
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    let tables: i64 =
        connection
            .query_row("select count(*) from sqlite_schema where type = 'table' and name = 'schema_version'", [], |row| row.get(0))?;
    if tables == 0 { Ok(0) } else { connection.query_row("select version from schema_version", [], |row| row.get(0)) }
}

fn refuse_foreign(connection: &Connection, path: &Path) -> Result<()> {
    let tables: i64 = connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0)).map_err(|e| damaged(path, e))?;
    if tables > 0 {
        return Err(Error::Database(anyhow!(
            "{} is a database of another program: name another file, or another data folder",
            path.display()
        )));
    }
    Ok(())
}

fn back_up(connection: &Connection, path: &Path, found: i64) -> Result<()> {
    let mut copy = path.as_os_str().to_owned();
    copy.push(format!(".schema-{found}.bak"));
    let copy = PathBuf::from(copy);
    let attempt = || -> anyhow::Result<()> {
        // VACUUM INTO takes an empty file, and keeps the mode that we give it here. What stands there is the copy of an
        // upgrade that did not come to its end.
        if copy.exists() {
            std::fs::remove_file(&copy)?;
        }
        super::create_private(&copy)?;
        let name = copy.to_str().context("the path is not UTF-8")?;
        connection.execute("vacuum into ?1", [name])?;
        Ok(())
    };
    attempt().with_context(|| format!("copying the database to {} before its upgrade", copy.display()))?;
    tracing::info!(copy = %copy.display(), "copied the database before the upgrade of its schema");
    Ok(())
}

fn apply(connection: &mut Connection, found: i64, steps: &[Migration]) -> anyhow::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been quicker between the check and the lock.
    anyhow::ensure!(version(&transaction)? == found, "another process upgrades this database: start again when it is done");
    transaction.execute_batch("create table if not exists schema_version (version bigint not null)")?;
    if found == 0 {
        transaction.execute("insert into schema_version (version) values (0)", [])?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    for step in steps.iter().filter(|step| step.version > found) {
        transaction.execute_batch(step.sql).with_context(|| format!("step {}", step.version))?;
        transaction.execute("update schema_version set version = ?1", [step.version])?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Migration = Migration { version: 1, sql: "create table a (x text)" };
    const TWO: Migration = Migration { version: 2, sql: "alter table a add column y text; insert into a values ('x', 'y')" };
    const BROKEN: Migration = Migration { version: 3, sql: "create table b (x text); no statement" };

    fn count(connection: &Connection, sql: &str) -> i64 {
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn steps_apply_once_in_order_with_a_copy_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("k.db");
        let mut connection = Connection::open(&path).unwrap();
        prepare(&mut connection, &path, &[ONE]).unwrap();
        prepare(&mut connection, &path, &[ONE, TWO]).unwrap();
        prepare(&mut connection, &path, &[ONE, TWO]).unwrap();
        assert_eq!(count(&connection, "select count(*) from a"), 1);
        assert_eq!(version(&connection).unwrap(), 2);
        let copy = directory.path().join("k.db.schema-1.bak");
        assert_eq!(version(&Connection::open(&copy).unwrap()).unwrap(), 1);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&copy).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(prepare(&mut connection, &path, &[ONE]), Err(Error::NewerSchema { found: 2, known: 1 })));
    }

    #[test]
    fn a_step_that_fails_leaves_everything_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("k.db");
        let mut connection = Connection::open(&path).unwrap();
        prepare(&mut connection, &path, &[ONE]).unwrap();
        assert!(prepare(&mut connection, &path, &[ONE, TWO, BROKEN]).is_err());
        assert_eq!(version(&connection).unwrap(), 1);
        assert_eq!(count(&connection, "select count(*) from sqlite_schema where name = 'b'"), 0);
        prepare(&mut connection, &path, &[ONE, TWO]).unwrap();
    }

    #[test]
    fn another_programs_database_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("k.db");
        let mut connection = Connection::open(&path).unwrap();
        connection.execute_batch("create table theirs (x text)").unwrap();
        let error = prepare(&mut connection, &path, &[ONE]).unwrap_err().to_string();
        assert!(error.contains("another program") && error.contains("k.db"), "{error}");
    }
}
