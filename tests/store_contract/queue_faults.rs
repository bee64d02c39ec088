//! The queue when workers, leases and clocks fail.

use std::time::Duration;

use kubebyon::domain::job::JobState;
use kubebyon::queue::{self, LEASE, Outcome, WorkerOptions};
use kubebyon::store::jobs::{self, NewJob};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Scripted, Step, new_job};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

pub async fn the_job_of_a_killed_worker_is_taken_when_its_lease_ran_out(bench: Bench) {
    let stuck = Scripted::new("work", |_| Step::Forever);
    let first = bench.worker("one", std::slice::from_ref(&stuck));
    let id = bench.enqueue(new_job("work")).await;
    stuck.has_begun().await;
    first.kill().await;
    let well = Scripted::new("work", |leased| Step::Succeed(json!(leased.job.attempts)));
    let second = bench.worker("two", std::slice::from_ref(&well));
    bench.clock.advance(LEASE / 2);
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::TimedOut);
    assert_eq!((well.count(), bench.job(id).await.state), (0, JobState::Running));
    bench.clock.advance(LEASE);
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!(2)));
    second.stop().await;
}

pub async fn a_job_that_ends_its_workers_dies(bench: Bench) {
    let id = bench.enqueue(NewJob { max_attempts: 2, ..new_job("deadly") }).await;
    for _ in 0..2 {
        let deadly = Scripted::new("deadly", |_| Step::Forever);
        let worker = bench.worker("one", std::slice::from_ref(&deadly));
        deadly.has_begun().await;
        worker.kill().await;
        bench.clock.advance(LEASE * 2);
    }
    let careful = Scripted::new("deadly", |_| Step::Succeed(json!(null)));
    let worker = bench.worker("two", std::slice::from_ref(&careful));
    let Outcome::Dead(error) = queue::wait(&bench.store, id, MINUTE).await.unwrap() else { panic!("it is not dead") };
    assert!(error.starts_with("worker lost"), "{error}");
    worker.stop().await;
    assert_eq!(careful.count(), 0);
}

pub async fn an_earlier_process_of_the_host_is_reclaimed_at_once(bench: Bench) {
    let stuck = Scripted::new("work", |_| Step::Forever);
    let mut ids = Vec::new();
    for host in ["one", "two"] {
        let worker = bench.worker(host, std::slice::from_ref(&stuck));
        ids.push(bench.enqueue(NewJob { host: Some(host.to_owned()), ..new_job("work") }).await);
        stuck.has_begun().await;
        worker.kill().await;
    }
    // The clock was set back meanwhile, so that the lease would hold for long.
    bench.clock.set(bench.ambient.now().minus(HOUR));
    assert_eq!(queue::reclaim(&bench.store, &bench.ambient, "one").await.unwrap(), 1);
    assert_eq!(queue::reclaim(&bench.store, &bench.ambient, "one").await.unwrap(), 0);
    let job = bench.job(ids[0]).await;
    assert_eq!((job.state, job.attempts, job.run_after), (JobState::Pending, 1, bench.ambient.now()));
    assert_eq!(bench.job(ids[1]).await.state, JobState::Running);
}

pub async fn a_worker_that_lost_its_lease_writes_nothing(bench: Bench) {
    let handler = Scripted::new("work", |_| Step::UntilCancelled);
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(new_job("work")).await;
    handler.has_begun().await;
    bench.execute("update jobs set lease_token = 'another', lease_owner = 'two' where id = $1", vec![id.into()]).await;
    // The next renewal finds out and cancels the job, whose end must leave the other's lease alone.
    tokio::time::sleep(LEASE).await;
    worker.stop().await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.attempts, job.last_error), (JobState::Running, 1, None));
}

pub async fn a_lease_that_is_renewed_is_kept(bench: Bench) {
    let end = CancellationToken::new();
    let until = end.clone();
    let handler = Scripted::new("work", move |_| Step::Until(until.clone()));
    let first = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(new_job("work")).await;
    handler.has_begun().await;
    for _ in 0..20 {
        tokio::time::sleep(LEASE / 3).await;
        bench.clock.advance(LEASE / 3);
    }
    let mut sql = bench.store.read().await.unwrap();
    let mut rows = sql.query("select lease_expires_at from jobs where id = $1", vec![id.into()]).await.unwrap();
    let expires: i64 = rows[0].take(0).unwrap();
    assert!(expires > bench.ambient.now().as_micros());
    drop(sql);
    end.cancel();
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!("ended")));
    first.stop().await;
    assert_eq!(handler.count(), 1);
}

pub async fn a_clock_that_jumps_ahead_does_not_double_a_job(bench: Bench) {
    let end = CancellationToken::new();
    let until = end.clone();
    let handler = Scripted::new("work", move |_| Step::Until(until.clone()));
    let first = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(new_job("work")).await;
    handler.has_begun().await;
    let second = bench.worker("two", std::slice::from_ref(&handler));
    bench.clock.advance(HOUR);
    // A job of another cluster wakes the second worker, for which the first one's lease has run out.
    let other = bench.enqueue(NewJob { host: Some("two".into()), ..new_job("work") }).await;
    bench.job_once(other, |job| job.state == JobState::Running).await;
    bench.clock.set(bench.ambient.now().minus(HOUR * 2));
    tokio::time::sleep(LEASE).await;
    end.cancel();
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!("ended")));
    assert_eq!(queue::wait(&bench.store, other, MINUTE).await.unwrap(), Outcome::Succeeded(json!("ended")));
    first.stop().await;
    second.stop().await;
    assert_eq!((handler.count(), bench.job(id).await.attempts), (2, 1));
}

pub async fn a_clock_that_jumps_back_does_not_stop_the_queue(bench: Bench) {
    let id = bench.enqueue(new_job("work")).await;
    bench.clock.set(bench.ambient.now().minus(HOUR));
    let handler = Scripted::new("work", |_| Step::Succeed(json!(null)));
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!(null)));
    worker.stop().await;
}

pub async fn draining_gives_back_what_did_not_end(bench: Bench) {
    let polite = Scripted::new("polite", |_| Step::UntilCancelled);
    let deaf = Scripted::new("deaf", |_| Step::Forever);
    let options = WorkerOptions { drain: Duration::from_secs(5), ..WorkerOptions::new("one", &bench.ambient) };
    let worker = bench.worker_with(&options, &[polite.clone(), deaf.clone()]);
    let ids = [bench.enqueue(new_job("polite")).await, bench.enqueue(new_job("deaf")).await];
    polite.has_begun().await;
    deaf.has_begun().await;
    let begun = tokio::time::Instant::now();
    worker.stop().await;
    assert!(begun.elapsed() >= options.drain && begun.elapsed() < options.drain * 2, "{:?}", begun.elapsed());
    for id in ids {
        let job = bench.job(id).await;
        assert_eq!((job.state, job.attempts, job.last_error), (JobState::Pending, 0, None));
    }
    let well = ["polite", "deaf"].map(|kind| Scripted::new(kind, |_| Step::Succeed(json!(null))));
    let worker = bench.worker("one", &well);
    for id in ids {
        assert_eq!(queue::wait(&bench.store, id, MINUTE).await.unwrap(), Outcome::Succeeded(json!(null)));
    }
    worker.stop().await;
}

pub async fn draining_lets_jobs_end(bench: Bench) {
    let end = CancellationToken::new();
    let until = end.clone();
    let handler = Scripted::new("work", move |_| Step::Until(until.clone()));
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let id = bench.enqueue(new_job("work")).await;
    handler.has_begun().await;
    let stopping = tokio::spawn(worker.stop());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let not_begun = bench.enqueue(new_job("work")).await;
    end.cancel();
    stopping.await.unwrap();
    assert_eq!(bench.job(id).await.state, JobState::Succeeded);
    assert_eq!(bench.job(not_begun).await.attempts, 0);
    let mut sql = bench.store.read().await.unwrap();
    assert_eq!(jobs::result(&mut *sql, id).await.unwrap(), Some(json!("ended")));
}
