//! A process that is killed with SIGKILL while it commits: what it was told is committed is there, and nothing by halves.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kubebyon::domain::{Ambient, event};
use kubebyon::store::{Store, events, meta, settings, sqlite};

const DATABASE: &str = "STORE_CONTRACT_DATABASE";

/// Commits without end: a number in a setting, and as many events. Tells each number after its commit.
#[tokio::test]
async fn child_that_commits_without_end() {
    // Without a path somebody runs all tests: there is nothing to do then.
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let (store, ambient) = (Store::new(sqlite::open(Path::new(&path)).unwrap()), Ambient::system());
    let mut n = count(&store).await.0;
    loop {
        n += 1;
        let mut tx = store.begin().await.unwrap();
        settings::set(&mut tx, "n", &n.to_string()).await.unwrap();
        let event = event::NewEvent {
            project_id: None,
            cluster: None,
            severity: event::Severity::Normal,
            reason: "Counted".into(),
            message: "x".repeat(2000),
            actor: None,
        };
        events::append(&mut tx, ambient.now(), event).await.unwrap();
        tx.commit().await.unwrap();
        println!("committed {n}");
    }
}

async fn count(store: &Store) -> (usize, usize) {
    let mut sql = store.read().await.unwrap();
    let n = settings::all(&mut *sql).await.unwrap().get("n").map_or(0, |n| n.parse().unwrap());
    let mut rows = sql.query("select count(*) from events", Vec::new()).await.unwrap();
    (n, usize::try_from(rows[0].take::<i64>(0).unwrap()).unwrap())
}

fn start(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child_that_commits_without_end", "--nocapture"])
        .env(DATABASE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn what_was_committed_before_a_kill_is_there_and_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    let mut told = 0;
    for round in 1..=6 {
        let mut child = start(&path);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Killed at another place of its work each time; what it still said before that counts too.
        let mut rest = lines.map_while(Result::ok).filter_map(|line| line.split_once("committed ")?.1.parse::<usize>().ok());
        told = rest.by_ref().nth(7 * round).expect("the child commits");
        child.kill().unwrap();
        child.wait().unwrap();
        told = rest.last().unwrap_or(told);
        let store = Store::new(sqlite::open(&path).unwrap());
        let (n, events) = count(&store).await;
        assert_eq!(n, events, "a commit by halves");
        assert!(n >= told && n <= told + 1, "told {told}, found {n}");
        // The database takes writes again at once.
        let mut tx = store.begin().await.unwrap();
        meta::put_if_absent(&mut tx, &format!("round {round}"), "whole").await.unwrap();
        tx.commit().await.unwrap();
    }
    assert!(told > 100, "{told}");
}
