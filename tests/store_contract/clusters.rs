//! Clusters as rows.

use std::collections::BTreeSet;

use kubebyon::domain::cluster::{Cluster, LocalAllotment, Phase};
use kubebyon::domain::event::{NewEvent, Severity};
use kubebyon::domain::job::JobState;
use kubebyon::domain::label::Selector;
use kubebyon::store::certificates::CertificateRecord;
use kubebyon::store::jobs::NewJob;
use kubebyon::store::{Change, Error, certificates, clusters, events, jobs, kubeconfigs, projects, secrets};

use crate::bench::{Bench, Scripted, Step, all_pages, labels, new_cluster, new_job, page, spec};
use crate::ledgers::kubeconfig;

fn names(clusters: &[Cluster]) -> Vec<&str> {
    clusters.iter().map(|cluster| cluster.name.as_str()).collect()
}

pub async fn are_found_by_id_and_by_name(bench: Bench) {
    let mut changes = bench.store.changes();
    let made = bench.cluster("demo", &[("team", "web")]).await;
    assert_eq!(changes.recv().await.unwrap(), Change::Cluster(made.id));
    assert_eq!((made.project.as_str(), made.generation, made.resource_version), ("default", 1, 1));
    assert_eq!((made.status.phase, made.host.as_deref(), made.node_port), (Phase::Pending, Some("one"), None));
    assert!(made.label.starts_with("demo-"));
    let mut sql = bench.store.read().await.unwrap();
    assert_eq!(clusters::find(&mut *sql, made.id).await.unwrap().as_ref(), Some(&made));
    assert_eq!(clusters::find_by_name(&mut *sql, made.project_id, "demo").await.unwrap().as_ref(), Some(&made));
    assert_eq!(clusters::find_by_name(&mut *sql, made.project_id, "Demo").await.unwrap(), None);
    assert_eq!(clusters::on_host(&mut *sql, "one").await.unwrap(), std::slice::from_ref(&made));
    assert!(clusters::on_host(&mut *sql, "two").await.unwrap().is_empty());
    assert_eq!(clusters::all(&mut *sql).await.unwrap(), [made]);
}

pub async fn names_are_unique_in_a_project(bench: Bench) {
    let first = bench.cluster("demo", &[]).await;
    let other = bench.project("other").await;
    let second = bench.cluster_of(other, "demo", &[]).await;
    assert_ne!(first.label, second.label);
    let mut tx = bench.store.begin().await.unwrap();
    let again = clusters::create(&mut tx, &bench.ambient, new_cluster(other, "demo", &[])).await;
    assert!(matches!(again, Err(Error::Exists(what)) if what.contains("demo")));
    // The refusal leaves the transaction as it was.
    clusters::create(&mut tx, &bench.ambient, new_cluster(other, "demo-2", &[])).await.unwrap();
    tx.commit().await.unwrap();
}

pub async fn text_of_every_script_comes_back_as_it_went_in(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let text = "Größe — 集群 🦀 'quote' \"double\" $1 ?1 -- \\ \u{0} \n";
    let mut status = cluster.status.clone();
    status.set_condition(bench.ambient.now(), "Ready", false, "Pending", text);
    let mut tx = bench.store.begin().await.unwrap();
    clusters::set_status(&mut tx, cluster.id, &status).await.unwrap();
    let project = projects::create(&mut tx, &bench.ambient, "集群").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bench.find(cluster.id).await.unwrap().status, status);
    let mut sql = bench.store.read().await.unwrap();
    assert_eq!(projects::find_by_name(&mut *sql, "集群").await.unwrap(), Some(project));
}

pub async fn an_update_over_an_old_version_is_refused(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let mut tx = bench.store.begin().await.unwrap();
    let new = clusters::update(&mut tx, cluster.id, Some(1), &spec(), &labels(&[("a", "b")])).await.unwrap().unwrap();
    assert_eq!(new.resource_version, 2);
    let stale = clusters::update(&mut tx, cluster.id, Some(1), &spec(), &labels(&[])).await;
    assert!(matches!(stale, Err(Error::Stale { expected: 1, found: 2 })));
    let stale = clusters::mark_deleted(&mut tx, &bench.ambient, cluster.id, Some(1)).await;
    assert!(matches!(stale, Err(Error::Stale { expected: 1, found: 2 })));
    tx.commit().await.unwrap();
    let stands = bench.find(cluster.id).await.unwrap();
    assert_eq!((stands.labels, stands.deleted_at), (labels(&[("a", "b")]), None));
}

pub async fn only_a_changed_spec_is_a_new_generation(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let mut tx = bench.store.begin().await.unwrap();
    let same = clusters::update(&mut tx, cluster.id, None, &spec(), &labels(&[])).await.unwrap().unwrap();
    assert_eq!(same, cluster);
    let relabelled = clusters::update(&mut tx, cluster.id, None, &spec(), &labels(&[("a", "b")])).await.unwrap().unwrap();
    assert_eq!((relabelled.generation, relabelled.resource_version), (1, 2));
    let mut newer = spec();
    newer.kubernetes_version = "1.35.0".parse().unwrap();
    let upgraded = clusters::update(&mut tx, cluster.id, Some(2), &newer, &labels(&[("a", "b")])).await.unwrap().unwrap();
    assert_eq!((upgraded.generation, upgraded.resource_version), (2, 3));
    tx.commit().await.unwrap();
    assert_eq!(bench.find(cluster.id).await, Some(upgraded));
}

pub async fn an_unchanged_status_is_not_written(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let mut status = cluster.status.clone();
    status.phase = Phase::Ready;
    for version in [2, 2] {
        let mut changes = bench.store.changes();
        let mut tx = bench.store.begin().await.unwrap();
        assert!(clusters::set_status(&mut tx, cluster.id, &status).await.unwrap());
        tx.commit().await.unwrap();
        assert_eq!(bench.find(cluster.id).await.unwrap().resource_version, version);
        status = bench.find(cluster.id).await.unwrap().status;
        drop(changes.try_recv());
    }
    let mut changes = bench.store.changes();
    let mut tx = bench.store.begin().await.unwrap();
    clusters::set_status(&mut tx, cluster.id, &status).await.unwrap();
    clusters::remove(&mut tx, cluster.id, bench.ambient.now()).await.unwrap();
    assert!(!clusters::set_status(&mut tx, cluster.id, &status).await.unwrap());
    drop(tx);
    assert!(changes.try_recv().is_err());
}

pub async fn are_marked_for_deletion_once(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let mut tx = bench.store.begin().await.unwrap();
    let first = clusters::mark_deleted(&mut tx, &bench.ambient, cluster.id, None).await.unwrap().unwrap();
    assert_eq!((first.status.phase, first.deleted_at), (Phase::Deleting, Some(bench.ambient.now())));
    bench.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(clusters::mark_deleted(&mut tx, &bench.ambient, cluster.id, None).await.unwrap().unwrap(), first);
    assert_eq!(clusters::update(&mut tx, cluster.id, None, &spec(), &labels(&[("a", "b")])).await.unwrap(), None);
    assert_eq!(clusters::find(tx.sql(), cluster.id).await.unwrap(), Some(first));
}

pub async fn ports_are_the_lowest_free_ones(bench: Bench) {
    let mut made = Vec::new();
    for name in ["a", "b", "c", "d"] {
        made.push(bench.cluster(name, &[]).await.id);
    }
    let mut tx = bench.store.begin().await.unwrap();
    let range = || 30000..=30002;
    for (id, port) in made[..3].iter().zip([30000, 30001, 30002]) {
        assert_eq!(clusters::allot_node_port(&mut tx, *id, range()).await.unwrap(), Some(port));
    }
    assert_eq!(clusters::allot_node_port(&mut tx, made[1], range()).await.unwrap(), Some(30001), "the one it has");
    assert_eq!(clusters::allot_node_port(&mut tx, made[3], range()).await.unwrap(), None, "used up");
    clusters::remove(&mut tx, made[1], bench.ambient.now()).await.unwrap();
    assert_eq!(clusters::allot_node_port(&mut tx, made[3], range()).await.unwrap(), Some(30001));
    tx.commit().await.unwrap();
    assert_eq!(bench.find(made[3]).await.unwrap().node_port, Some(30001));
}

pub async fn allotments_are_made_once(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let first = LocalAllotment { address: "127.64.0.1".parse().unwrap(), uid: Some(200_001) };
    let other = LocalAllotment { address: "127.64.0.2".parse().unwrap(), uid: None };
    let mut tx = bench.store.begin().await.unwrap();
    clusters::set_local(&mut tx, cluster.id, &first).await.unwrap();
    clusters::set_local(&mut tx, cluster.id, &first).await.unwrap();
    assert!(clusters::set_local(&mut tx, cluster.id, &other).await.is_err());
    tx.commit().await.unwrap();
    assert_eq!(bench.find(cluster.id).await.unwrap().local, Some(first));
}

pub async fn pages_follow_each_other(bench: Bench) {
    let mut expected = Vec::new();
    for n in 0..7 {
        expected.push(bench.cluster(&format!("c{n}"), &[]).await);
    }
    let mut sql = bench.store.read().await.unwrap();
    let (items, sizes) = all_pages!(3, |page| clusters::list(&mut *sql, None, &Selector::default(), page));
    assert_eq!((items, sizes), (expected, vec![3, 3, 1]));
    let (_, sizes) = all_pages!(7, |page| clusters::list(&mut *sql, None, &Selector::default(), page));
    assert_eq!(sizes, [7], "a full last page says that it is the last");
}

pub async fn a_page_of_selected_clusters_is_full_while_more_follow(bench: Bench) {
    for n in 0..520 {
        bench.cluster(&format!("c{n}"), &[("n", if n % 100 == 99 { "hundredth" } else { "other" })]).await;
    }
    let selector: Selector = "n=hundredth".parse().unwrap();
    let mut sql = bench.store.read().await.unwrap();
    let (items, sizes) = all_pages!(2, |page| clusters::list(&mut *sql, None, &selector, page));
    assert_eq!(names(&items), ["c99", "c199", "c299", "c399", "c499"]);
    assert_eq!(sizes, [2, 2, 1]);
    let nothing = clusters::list(&mut *sql, None, &"n=none".parse().unwrap(), &page(2, None)).await.unwrap();
    assert!(nothing.items.is_empty() && nothing.next.is_none());
}

pub async fn lists_show_the_given_projects_alone(bench: Bench) {
    let (a, b, c) = (bench.project("a").await, bench.project("b").await, bench.project("c").await);
    for n in 0..4 {
        for (project, prefix) in [(a, "a"), (b, "b"), (c, "c")] {
            bench.cluster_of(project, &format!("{prefix}{n}"), &[]).await;
        }
    }
    let mut sql = bench.store.read().await.unwrap();
    // A project that is named twice is shown once.
    let (items, sizes) = all_pages!(3, |page| clusters::list(&mut *sql, Some(&[c, a, a]), &Selector::default(), page));
    assert_eq!(names(&items), ["a0", "c0", "a1", "c1", "a2", "c2", "a3", "c3"]);
    assert_eq!(sizes, [3, 3, 2]);
    let nothing = clusters::list(&mut *sql, Some(&[]), &Selector::default(), &page(3, None)).await.unwrap();
    assert!(nothing.items.is_empty() && nothing.next.is_none());
}

pub async fn tokens_of_other_lists_are_refused(bench: Bench) {
    bench.project("a").await;
    let mut sql = bench.store.read().await.unwrap();
    let token = projects::list(&mut *sql, None, &page(1, None)).await.unwrap().next;
    assert!(token.is_some());
    for token in [token, Some(String::new()), Some("not a token".into())] {
        let refused = clusters::list(&mut *sql, None, &Selector::default(), &page(1, token)).await;
        assert!(matches!(refused, Err(Error::BadContinue)));
    }
}

pub async fn are_removed_with_all_but_their_events_and_running_jobs(bench: Bench) {
    let (gone, kept) = (bench.cluster("gone", &[]).await, bench.cluster("kept", &[]).await);
    let handler = Scripted::new("delete", |_| Step::UntilCancelled);
    let worker = bench.worker("one", std::slice::from_ref(&handler));
    let of = |id, kind| NewJob { cluster_id: Some(id), ..new_job(kind) };
    let running = bench.enqueue(of(gone.id, "delete")).await;
    handler.has_begun().await;
    let waiting = bench.enqueue(of(gone.id, "reconcile")).await;
    let other = bench.enqueue(of(kept.id, "reconcile")).await;
    let mut tx = bench.store.begin().await.unwrap();
    for (n, cluster) in [&gone, &kept].into_iter().enumerate() {
        kubeconfigs::insert(&mut tx, &kubeconfig(&bench, cluster.id)).await.unwrap();
        secrets::put(&mut tx, Some(cluster.id), "ca", "k1", b"sealed").await.unwrap();
        let record = CertificateRecord {
            fingerprint: format!("f{n}"),
            cluster_id: Some(cluster.id),
            authority: "server".into(),
            purpose: "kube-apiserver".into(),
            common_name: "kube-apiserver".into(),
            not_before: bench.ambient.now(),
            not_after: bench.ambient.now(),
        };
        certificates::record(&mut tx, &[record]).await.unwrap();
        let event = NewEvent {
            project_id: Some(cluster.project_id),
            cluster: Some((cluster.id, cluster.name.clone())),
            severity: Severity::Normal,
            reason: "Ready".into(),
            message: String::new(),
            actor: None,
        };
        events::append(&mut tx, bench.ambient.now(), event).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut changes = bench.store.changes();
    let mut tx = bench.store.begin().await.unwrap();
    clusters::remove(&mut tx, gone.id, bench.ambient.now()).await.unwrap();
    clusters::remove(&mut tx, gone.id, bench.ambient.now()).await.unwrap();
    tx.commit().await.unwrap();
    let mut told = Vec::new();
    while let Ok(change) = changes.try_recv() {
        told.push(change);
    }
    assert!(told.contains(&Change::Cluster(gone.id)) && told.contains(&Change::JobFinished(waiting)), "{told:?}");
    let mut sql = bench.store.read().await.unwrap();
    for (id, count) in [(gone.id, 0), (kept.id, 1)] {
        assert_eq!(usize::from(clusters::find(&mut *sql, id).await.unwrap().is_some()), count);
        assert_eq!(kubeconfigs::list(&mut *sql, id).await.unwrap().len(), count);
        assert_eq!(certificates::list(&mut *sql, Some(id)).await.unwrap().len(), count);
        assert_eq!(usize::from(secrets::get(&mut *sql, Some(id), "ca").await.unwrap().is_some()), count);
    }
    assert_eq!(events::after(&mut *sql, &events::Filter::default(), 0, 10).await.unwrap().len(), 2);
    let left: BTreeSet<_> =
        jobs::list(&mut *sql, &jobs::Filter::default(), &page(10, None)).await.unwrap().items.into_iter().map(|j| j.id).collect();
    assert_eq!(left, BTreeSet::from([running, other]));
    assert_eq!(jobs::find(&mut *sql, running).await.unwrap().unwrap().state, JobState::Running);
    drop(sql);
    worker.stop().await;
}
