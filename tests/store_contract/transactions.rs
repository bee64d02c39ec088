//! Transactions, views and what watchers hear.

use kubebyon::store::{Change, settings};

use crate::bench::Bench;

pub async fn what_is_dropped_leaves_nothing(bench: Bench) {
    let mut tx = bench.store.begin().await.unwrap();
    settings::set(&mut tx, "a", "1").await.unwrap();
    drop(tx);
    assert!(settings::all(bench.store.begin().await.unwrap().sql()).await.unwrap().is_empty());
    assert!(settings::all(&mut *bench.store.read().await.unwrap()).await.unwrap().is_empty());
}

pub async fn watchers_hear_of_commits_alone(bench: Bench) {
    let mut changes = bench.store.changes();
    let mut dropped = bench.store.begin().await.unwrap();
    settings::set(&mut dropped, "a", "1").await.unwrap();
    drop(dropped);
    assert!(changes.is_empty());
    let mut tx = bench.store.begin().await.unwrap();
    settings::set(&mut tx, "a", "1").await.unwrap();
    settings::set(&mut tx, "b", "2").await.unwrap();
    assert!(changes.is_empty());
    tx.commit().await.unwrap();
    assert_eq!(changes.recv().await.unwrap(), Change::Settings);
    assert!(changes.is_empty(), "a commit tells of a change once");
}

pub async fn views_are_consistent(bench: Bench) {
    let mut view = bench.store.read().await.unwrap();
    assert!(settings::all(&mut *view).await.unwrap().is_empty());
    let mut tx = bench.store.begin().await.unwrap();
    settings::set(&mut tx, "a", "1").await.unwrap();
    tx.commit().await.unwrap();
    assert!(settings::all(&mut *view).await.unwrap().is_empty());
    assert_eq!(settings::all(&mut *bench.store.read().await.unwrap()).await.unwrap().len(), 1);
}

pub async fn writers_take_turns(bench: Bench) {
    let add = |n: usize| {
        let store = bench.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let known = settings::all(tx.sql()).await.unwrap();
            let sum: usize = known.get("sum").map_or(0, |text| text.parse().unwrap());
            tokio::task::yield_now().await;
            settings::set(&mut tx, "sum", &(sum + n).to_string()).await.unwrap();
            tx.commit().await.unwrap();
        }
    };
    futures_util::future::join_all((1..=40).map(add)).await;
    assert_eq!(settings::all(&mut *bench.store.read().await.unwrap()).await.unwrap()["sum"], "820");
}
