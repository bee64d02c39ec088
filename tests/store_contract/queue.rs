//! The queue when all goes well, and when a job does not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubebyon::domain::JobId;
use kubebyon::domain::job::{Job, JobState};
use kubebyon::domain::node::Fate;
use kubebyon::jobs::prune;
use kubebyon::queue::{self, Embedded, Outcome, Worker, WorkerOptions};
use kubebyon::store::jobs::{self, Filter, NewJob};
use kubebyon::store::{join_tokens, sessions, users};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Scripted, Step, all_pages, new_job};
use crate::nodes;

const MINUTE: Duration = Duration::from_secs(60);

fn is_over(job: &Job) -> bool {
    matches!(job.state, JobState::Succeeded | JobState::Dead)
}

pub async fn a_job_is_done_and_its_result_kept(bench: Bench) {
    let handler = Scripted::new("echo", |leased| Step::Succeed(leased.payload["n"].clone()));
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(NewJob { payload: json!({"n": "ü"}), ..new_job("echo") }).await;
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!("ü")));
    let job = bench.job(id).await;
    assert_eq!((job.state, job.attempts, job.finished_at), (JobState::Succeeded, 1, Some(bench.ambient.now())));
    worker.stop().await;
    assert_eq!(handler.count(), 1);
}

pub async fn a_job_that_was_not_committed_is_not_done(bench: Bench) {
    let handler = Scripted::new("echo", |_| Step::Succeed(json!(1)));
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let mut tx = bench.store.begin().await.unwrap();
    let never = jobs::enqueue(&mut tx, &bench.ambient, new_job("echo")).await.unwrap();
    drop(tx);
    let id = bench.enqueue(new_job("echo")).await;
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!(1)));
    assert!(matches!(queue::wait(&bench.store, never, MINUTE).await.unwrap(), Outcome::Dead(_)));
    worker.stop().await;
    assert_eq!(handler.count(), 1);
}

pub async fn failures_are_retried_until_one_goes_well(bench: Bench) {
    let handler =
        Scripted::new("flaky", |leased| if leased.job.attempts < 3 { Step::Fail("not yet") } else { Step::Succeed(json!("at last")) });
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(new_job("flaky")).await;
    for attempt in 1..3 {
        let job = bench.job_once(id, |job| job.state == JobState::Pending && job.attempts == attempt).await;
        assert_eq!(job.last_error.as_deref(), Some("not yet"));
        let wait = job.run_after.since(bench.ambient.now());
        assert!(wait >= Duration::from_millis(500) && wait <= Duration::from_secs(2), "{wait:?}");
        bench.clock.advance(wait);
    }
    let job = bench.job_once(id, is_over).await;
    assert_eq!((job.state, job.attempts, job.last_error), (JobState::Succeeded, 3, None));
    worker.stop().await;
}

pub async fn a_job_is_dead_after_its_last_attempt_and_can_be_retried(bench: Bench) {
    let failing = Arc::new(AtomicUsize::new(1));
    let switch = Arc::clone(&failing);
    let handler =
        Scripted::new(
            "flaky",
            move |_| {
                if switch.load(Ordering::SeqCst) == 1 { Step::Fail("still broken") } else { Step::Succeed(json!(null)) }
            },
        );
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(NewJob { max_attempts: 2, ..new_job("flaky") }).await;
    bench.job_once(id, |job| job.state == JobState::Pending && job.attempts == 1).await;
    bench.clock.advance(MINUTE);
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Dead("still broken".into()));
    let job = bench.job(id).await;
    assert_eq!((job.state, job.attempts, job.finished_at), (JobState::Dead, 2, Some(bench.ambient.now())));
    failing.store(0, Ordering::SeqCst);
    let mut tx = bench.store.begin().await.unwrap();
    assert!(jobs::retry(&mut tx, bench.ambient.now(), id).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!(null)));
    let job = bench.job(id).await;
    assert_eq!((job.attempts, job.last_error), (1, None));
    let mut tx = bench.store.begin().await.unwrap();
    assert!(!jobs::retry(&mut tx, bench.ambient.now(), id).await.unwrap(), "it is not dead");
    drop(tx);
    worker.stop().await;
}

pub async fn a_fatal_failure_is_not_retried(bench: Bench) {
    let handler = Scripted::new("hopeless", |_| Step::Fatal("never"));
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(new_job("hopeless")).await;
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Dead("never".into()));
    worker.stop().await;
    assert_eq!(handler.count(), 1);
}

pub async fn a_panic_is_a_failure(bench: Bench) {
    let handler = Scripted::new("panics", |_| Step::Panic("out of range"));
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(NewJob { max_attempts: 1, ..new_job("panics") }).await;
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Dead("the job panicked: out of range".into()));
    let next = bench.enqueue(NewJob { max_attempts: 1, ..new_job("panics") }).await;
    bench.job_once(next, is_over).await;
    worker.stop().await;
}

pub async fn waiting_jobs_coalesce(bench: Bench) {
    let (a, b) = (bench.cluster("a", &[]).await.id, bench.cluster("b", &[]).await.id);
    let of = |cluster| NewJob { cluster_id: Some(cluster), coalesce: true, ..new_job("reconcile") };
    let first = bench.enqueue(of(a)).await;
    assert_eq!(bench.enqueue(of(a)).await, first);
    assert_ne!(bench.enqueue(of(b)).await, first);
    assert_ne!(bench.enqueue(NewJob { host: Some("two".into()), ..of(a) }).await, first);
    assert_ne!(bench.enqueue(NewJob { kind: "other", ..of(a) }).await, first);
    assert_ne!(bench.enqueue(NewJob { coalesce: false, ..of(a) }).await, first);
    let none = || NewJob { coalesce: true, ..new_job("reconcile") };
    assert_eq!(bench.enqueue(none()).await, bench.enqueue(none()).await);

    // One that runs may have read what has changed since: it is not joined. One that is put off becomes due.
    let handler = Scripted::new("reconcile", |leased| if leased.job.attempts == 1 { Step::Fail("x") } else { Step::UntilCancelled });
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let late = bench.job_once(first, |job| job.last_error.is_some() && job.state == JobState::Pending).await;
    assert!(late.run_after > bench.ambient.now());
    assert_eq!(bench.enqueue(of(a)).await, first);
    let due = bench.job(first).await;
    assert!(due.run_after <= bench.ambient.now() && due.attempts <= 1, "{due:?}");
    worker.stop().await;
}

pub async fn one_job_of_a_kind_runs_for_a_cluster(bench: Bench) {
    let (a, b) = (bench.cluster("a", &[]).await.id, bench.cluster("b", &[]).await.id);
    let running: Arc<Mutex<BTreeMap<JobId, CancellationToken>>> = Arc::default();
    let seen = Arc::clone(&running);
    let handler = Scripted::new("reconcile", move |leased| {
        let token = CancellationToken::new();
        seen.lock().unwrap().insert(leased.job.id, token.clone());
        Step::Until(token)
    });
    let mut of_a = Vec::new();
    for _ in 0..3 {
        of_a.push(bench.enqueue(NewJob { cluster_id: Some(a), ..new_job("reconcile") }).await);
    }
    let of_b = bench.enqueue(NewJob { cluster_id: Some(b), ..new_job("reconcile") }).await;
    let workers = ["one", "two"].map(|host| bench.worker(host, std::slice::from_ref(&handler)));
    bench.job_once(of_b, |job| job.state == JobState::Running).await;
    for id in of_a.iter().copied() {
        bench.job_once(id, |job| job.state == JobState::Running).await;
        for other in of_a.iter().copied().filter(|other| *other != id) {
            assert_ne!(bench.job(other).await.state, JobState::Running);
        }
        while !running.lock().unwrap().contains_key(&id) {
            tokio::task::yield_now().await;
        }
        running.lock().unwrap()[&id].cancel();
        bench.job_once(id, is_over).await;
    }
    assert_eq!(bench.job(of_b).await.state, JobState::Running);
    running.lock().unwrap()[&of_b].cancel();
    for worker in workers {
        worker.stop().await;
    }
}

pub async fn jobs_of_other_hosts_and_kinds_are_left_alone(bench: Bench) {
    let handler = Scripted::new("echo", |_| Step::Succeed(json!(null)));
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let other_host = bench.enqueue(NewJob { host: Some("two".into()), ..new_job("echo") }).await;
    let other_kind = bench.enqueue(new_job("ech")).await;
    let mine = bench.enqueue(NewJob { host: Some("one".into()), ..new_job("echo") }).await;
    bench.job_once(mine, is_over).await;
    worker.stop().await;
    for id in [other_host, other_kind] {
        let job = bench.job(id).await;
        assert_eq!((job.state, job.attempts), (JobState::Pending, 0));
    }
}

pub async fn waiting_ends_at_its_deadline(bench: Bench) {
    let id = bench.enqueue(new_job("nobody-does-this")).await;
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::TimedOut);
}

pub async fn jobs_are_listed(bench: Bench) {
    let (a, b) = (bench.project("a").await, bench.project("b").await);
    let cluster = bench.cluster_of(a, "demo", &[]).await.id;
    let handler = Scripted::new("hopeless", |_| Step::Fatal("never"));
    let mut ids = Vec::new();
    for (kind, project_id, cluster_id) in
        [("hopeless", Some(a), Some(cluster)), ("wait", Some(b), None), ("wait", Some(a), Some(cluster)), ("hopeless", None, None)]
    {
        ids.push(bench.enqueue(NewJob { project_id, cluster_id, ..new_job(kind) }).await);
    }
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    for n in [0, 3] {
        bench.job_once(ids[n], is_over).await;
    }
    worker.stop().await;
    let filters = [
        (Filter::default(), vec![3, 2, 1, 0]),
        (Filter { projects: Some(vec![a, b]), ..Filter::default() }, vec![2, 1, 0]),
        (Filter { state: Some(JobState::Dead), ..Filter::default() }, vec![3, 0]),
        (Filter { state: Some(JobState::Pending), ..Filter::default() }, vec![2, 1]),
        (Filter { state: Some(JobState::Running), ..Filter::default() }, vec![]),
        (Filter { projects: Some(vec![a]), state: Some(JobState::Dead), cluster: None }, vec![0]),
        (Filter { cluster: Some(cluster), ..Filter::default() }, vec![2, 0]),
        (Filter { cluster: Some(cluster), state: Some(JobState::Pending), projects: Some(vec![a]) }, vec![2]),
        (Filter { cluster: Some(cluster), projects: Some(vec![b]), state: None }, vec![]),
    ];
    let mut sql = bench.store.read().await.unwrap();
    for (filter, expected) in filters {
        let (items, _) = all_pages!(1, |page| jobs::list(&mut *sql, &filter, page));
        let expected: Vec<JobId> = expected.into_iter().map(|n: usize| ids[n]).collect();
        assert_eq!(items.iter().map(|job| job.id).collect::<Vec<_>>(), expected, "{filter:?}");
    }
    assert_eq!(jobs::result(&mut *sql, ids[0]).await.unwrap(), None);
}

pub async fn old_rows_are_removed_by_the_prune_job(bench: Bench) {
    let day = Duration::from_secs(24 * 3600);
    let handlers = [Scripted::new("ok", |_| Step::Succeed(json!(null))), Scripted::new("hopeless", |_| Step::Fatal("never"))];
    let worker = bench.worker("one", &handlers);
    let (ok, dead) = (bench.enqueue(new_job("ok")).await, bench.enqueue(new_job("hopeless")).await);
    bench.job_once(ok, is_over).await;
    bench.job_once(dead, is_over).await;
    worker.stop().await;
    let mut tx = bench.store.begin().await.unwrap();
    let user = users::create(&mut tx, &bench.ambient, "ada", "h", false).await.unwrap();
    sessions::create(&mut tx, &bench.ambient, user.id, &[1; 32], bench.ambient.now().plus(day)).await.unwrap();
    tx.commit().await.unwrap();
    let cluster = bench.cluster("demo", &[]).await;
    let (token, node) = (nodes::token(&bench, &cluster, 1), nodes::insert(&bench, &cluster, "a", "192.168.1.10").await);
    let mut tx = bench.store.begin().await.unwrap();
    join_tokens::insert(&mut tx, &token, &[1; 32]).await.unwrap();
    kubebyon::store::nodes::remove(&mut tx, node.id, Fate::Left, bench.ambient.now()).await.unwrap();
    tx.commit().await.unwrap();

    let transport = Arc::new(Embedded::new(&bench.store));
    let options = WorkerOptions::new("one", &bench.ambient);
    let worker = Worker::new(bench.store.clone(), bench.ambient.clone(), transport, options).with(Arc::new(prune::Prune::default()));
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(worker.run(shutdown.clone()));
    for (days, jobs_removed, sessions_removed, tokens_removed, nodes_removed) in [(6, 0, 1, 0, 0), (2, 1, 0, 1, 0), (23, 3, 0, 0, 1)] {
        bench.clock.advance(day * days);
        let id = bench.enqueue(prune::new_job()).await;
        let Outcome::Succeeded(removed) = queue::wait(&bench.store, id, MINUTE).await.unwrap() else { panic!("it failed") };
        assert_eq!((removed["jobs"].clone(), removed["sessions"].clone()), (json!(jobs_removed), json!(sessions_removed)), "{days}");
        assert_eq!((removed["join-tokens"].clone(), removed["nodes"].clone()), (json!(tokens_removed), json!(nodes_removed)), "{days}");
    }
    shutdown.cancel();
    run.await.unwrap();
}

pub async fn two_workers_do_each_of_200_jobs_once(bench: Bench) {
    let done: Arc<Mutex<BTreeMap<JobId, usize>>> = Arc::default();
    let seen = Arc::clone(&done);
    let handler = Scripted::new("count", move |leased| {
        *seen.lock().unwrap().entry(leased.job.id).or_default() += 1;
        Step::Succeed(json!(null))
    });
    let mut ids = Vec::new();
    let mut tx = bench.store.begin().await.unwrap();
    for _ in 0..200 {
        ids.push(jobs::enqueue(&mut tx, &bench.ambient, new_job("count")).await.unwrap());
    }
    tx.commit().await.unwrap();
    let workers = ["one", "two"].map(|host| bench.worker(host, std::slice::from_ref(&handler)));
    for id in &ids {
        assert_eq!(queue::wait(&bench.store, *id, MINUTE).await.unwrap(), Outcome::Succeeded(json!(null)));
    }
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(*done.lock().unwrap(), ids.iter().map(|id| (*id, 1)).collect());
    for id in ids {
        assert_eq!(bench.job(id).await.attempts, 1);
    }
}
