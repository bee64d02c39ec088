use super::*;
use crate::store::{Error, Store, Value};

fn count(rows: &[super::super::Row]) -> i64 {
    rows[0].clone().take(0).unwrap()
}

async fn settings(sql: &mut dyn Sql) -> i64 {
    count(&sql.query("select count(*) from settings", Vec::new()).await.unwrap())
}

const INSERT: &str = "insert into settings (key, value) values ($1, $2)";

#[tokio::test]
async fn parameters_are_bound_by_their_number() {
    let store = Store::new(temporary().unwrap());
    let mut sql = store.read().await.unwrap();
    let mut rows = sql.query("select $2, $1, '$1', $2", vec![1i64.into(), "zwei".into()]).await.unwrap();
    assert_eq!(rows.pop().unwrap().0, [Value::Text("zwei".into()), Value::Int(1), Value::Text("$1".into()), Value::Text("zwei".into())]);
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    std::fs::write(&path, b"").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let database = open(&path).unwrap();
    let store = Store::new(database);
    let tx = store.begin().await.unwrap();
    tx.commit().await.unwrap();
    for name in ["k.db", "k.db-wal", "k.db-shm"] {
        let mode = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    std::fs::write(&path, "no database at all, but long enough to be taken for one ".repeat(100)).unwrap();
    let error = open(&path).err().unwrap().to_string();
    assert!(error.contains("k.db") && error.contains("damaged") && error.contains("backup"), "{error}");
    let missing = directory.path().join("absent/k.db");
    assert!(open(&missing).err().unwrap().to_string().contains("absent/k.db"));
}

#[tokio::test]
async fn a_half_written_file_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    drop(open(&path).unwrap());
    let whole = std::fs::read(&path).unwrap();
    assert!(!directory.path().join("k.db-wal").exists(), "the last connection to close moves everything into the file");
    let half = &whole[..whole.len() / 2];
    std::fs::write(&path, half).unwrap();
    let error = open(&path).err().unwrap().to_string();
    assert!(error.contains("k.db is damaged"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), half);
    std::fs::write(&path, &whole).unwrap();
    open(&path).unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    drop(open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().execute("update schema_version set version = 99", []).unwrap();
    let error = open(&path).err().unwrap();
    assert!(matches!(error, Error::NewerSchema { found: 99, known } if known == migrations::SQLITE.last().unwrap().version));
}

#[tokio::test]
async fn what_was_committed_is_there_after_a_new_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    let store = Store::new(open(&path).unwrap());
    let mut tx = store.begin().await.unwrap();
    tx.sql().execute(INSERT, vec!["a".into(), "ü".into()]).await.unwrap();
    tx.commit().await.unwrap();
    // A second open while the first still lives: as after a kill, the write-ahead log is not yet moved into the file.
    let again = Store::new(open(&path).unwrap());
    assert_eq!(settings(&mut *again.read().await.unwrap()).await, 1);
}

#[tokio::test]
async fn a_reader_keeps_its_view_and_a_dropped_transaction_leaves_nothing() {
    let store = Store::new(temporary().unwrap());
    let mut reader = store.read().await.unwrap();
    assert_eq!(settings(&mut *reader).await, 0);
    let mut tx = store.begin().await.unwrap();
    tx.sql().execute(INSERT, vec!["a".into(), "1".into()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(settings(&mut *reader).await, 0);
    drop(reader);
    let mut dropped = store.begin().await.unwrap();
    dropped.sql().execute(INSERT, vec!["b".into(), "2".into()]).await.unwrap();
    assert_eq!(settings(dropped.sql()).await, 2);
    drop(dropped);
    assert_eq!(settings(&mut *store.read().await.unwrap()).await, 1);
    assert_eq!(settings(store.begin().await.unwrap().sql()).await, 1);
}

#[tokio::test]
async fn a_statement_whose_caller_is_gone_does_not_reach_the_next_transaction() {
    let store = Store::new(temporary().unwrap());
    for n in 0..50i64 {
        let mut tx = store.begin().await.unwrap();
        let values = vec![n.to_string().into(), "x".into()];
        {
            let statement = tx.sql().execute(INSERT, values);
            let mut statement = std::pin::pin!(statement);
            // Polled once, so that it is on its way or done, and left.
            let _ = futures_util::poll!(statement.as_mut());
        }
        drop(tx);
    }
    assert_eq!(settings(store.begin().await.unwrap().sql()).await, 0);
}

#[tokio::test]
async fn after_an_error_nothing_of_the_transaction_can_be_committed() {
    let store = Store::new(temporary().unwrap());
    let mut tx = store.begin().await.unwrap();
    tx.sql().execute(INSERT, vec!["a".into(), "1".into()]).await.unwrap();
    let error = tx.sql().execute(INSERT, vec!["a".into(), "2".into()]).await.unwrap_err().to_string();
    assert!(error.contains("UNIQUE"), "{error}");
    assert!(tx.sql().execute(INSERT, vec!["b".into(), "2".into()]).await.is_err());
    assert!(tx.commit().await.is_err());
    assert_eq!(settings(&mut *store.read().await.unwrap()).await, 0);
}

#[tokio::test]
async fn readers_cannot_write() {
    let store = Store::new(temporary().unwrap());
    let mut reader = store.read().await.unwrap();
    assert!(reader.execute(INSERT, vec!["a".into(), "1".into()]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_what_is_held_ends_with_an_error() {
    let store = Store::new(temporary().unwrap());
    let held = store.begin().await.unwrap();
    assert!(matches!(store.begin().await, Err(Error::Busy { what: "writer", seconds: 10 })));
    drop(held);
    drop(store.begin().await.unwrap());
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(store.read().await.unwrap());
    }
    assert!(matches!(store.read().await, Err(Error::Busy { what: "reader", .. })));
    readers.pop();
    store.read().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_named_changes_nothing_and_passes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    let store = Store::new(open(&path).unwrap());
    // SQLite answers a limit on the file's pages as it answers a file system without space.
    let limit = async |pages: &'static str| {
        let mut tx = store.begin().await.unwrap();
        tx.sql().query(pages, Vec::new()).await.unwrap();
        tx.commit().await.unwrap();
    };
    limit("pragma max_page_count = 1").await;
    let mut tx = store.begin().await.unwrap();
    let error = tx.sql().execute(INSERT, vec!["a".into(), "x".repeat(1 << 20).into()]).await.unwrap_err();
    assert!(matches!(error, Error::DiskFull(_)), "{error}");
    assert!(error.to_string().contains("k.db") && error.to_string().contains("free some"), "{error}");
    drop(tx);
    limit("pragma max_page_count = 1000000").await;
    let mut tx = store.begin().await.unwrap();
    tx.sql().execute(INSERT, vec!["b".into(), "1".into()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(settings(&mut *store.read().await.unwrap()).await, 1);
}
