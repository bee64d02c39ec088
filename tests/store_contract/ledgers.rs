//! Secrets, certificates, kubeconfigs, settings, facts, answers and events.

use std::time::Duration;

use kubebyon::domain::event::{NewEvent, Severity};
use kubebyon::domain::kubeconfig::{ClusterRole, Kubeconfig};
use kubebyon::domain::{ClusterId, KubeconfigId, ProjectId};
use kubebyon::store::certificates::CertificateRecord;
use kubebyon::store::events::Filter;
use kubebyon::store::idempotency::Answer;
use kubebyon::store::{Change, Error, PRUNE_BATCH, certificates, events, idempotency, kubeconfigs, meta, secrets, settings};

use crate::bench::{Bench, all_pages};

const HOUR: Duration = Duration::from_secs(3600);

pub fn kubeconfig(bench: &Bench, cluster_id: ClusterId) -> Kubeconfig {
    bench.clock.advance(Duration::from_millis(1));
    let id = KubeconfigId::generate(&bench.ambient);
    Kubeconfig {
        id,
        cluster_id,
        owner: "ada".into(),
        role: ClusterRole::Edit,
        namespace: Some("web".into()),
        service_account: None,
        credential_id: format!("X509SHA256={id}"),
        created_at: bench.ambient.now(),
        expires_at: bench.ambient.now().plus(HOUR),
        revoked_at: None,
    }
}

pub async fn of_two_who_store_a_secret_both_get_the_first(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await.id;
    let mut tx = bench.store.begin().await.unwrap();
    for scope in [None, Some(cluster)] {
        assert_eq!(secrets::get(tx.sql(), scope, "ca").await.unwrap(), None);
        assert_eq!(secrets::put_if_absent(&mut tx, scope, "ca", "k", &[0, 255]).await.unwrap(), [0, 255]);
        assert_eq!(secrets::put_if_absent(&mut tx, scope, "ca", "k", b"second").await.unwrap(), [0, 255]);
        secrets::put(&mut tx, scope, "ca", "k", scope.map_or(b"p", |_| b"c")).await.unwrap();
    }
    assert_eq!(secrets::get(tx.sql(), None, "ca").await.unwrap().unwrap(), b"p");
    assert_eq!(secrets::get(tx.sql(), Some(cluster), "ca").await.unwrap().unwrap(), b"c");
    let unknown = secrets::put(&mut tx, Some(ClusterId::generate(&bench.ambient)), "ca", "k", b"x").await.unwrap_err();
    assert!(unknown.to_string().contains("refers to one that is gone"), "{unknown}");
}

pub async fn certificates_are_kept_and_pruned(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await.id;
    let now = bench.ambient.now();
    let record = |fingerprint: &str, cluster_id, hours: u32| CertificateRecord {
        fingerprint: fingerprint.into(),
        cluster_id,
        authority: "server".into(),
        purpose: "kube-apiserver".into(),
        common_name: "kube-apiserver".into(),
        not_before: now,
        not_after: now.plus(HOUR * hours),
    };
    let (short, long, platform) = (record("a", Some(cluster), 1), record("b", Some(cluster), 2), record("c", None, 1));
    let mut tx = bench.store.begin().await.unwrap();
    certificates::record(&mut tx, &[short.clone(), long.clone(), platform.clone()]).await.unwrap();
    certificates::record(&mut tx, std::slice::from_ref(&short)).await.unwrap();
    assert_eq!(certificates::list(tx.sql(), Some(cluster)).await.unwrap(), [long.clone(), short]);
    assert_eq!(certificates::list(tx.sql(), None).await.unwrap(), [platform]);
    assert_eq!(certificates::prune(&mut tx, now.plus(HOUR)).await.unwrap(), 0);
    assert_eq!(certificates::prune(&mut tx, now.plus(HOUR * 2)).await.unwrap(), 2);
    assert_eq!(certificates::list(tx.sql(), Some(cluster)).await.unwrap(), [long]);
}

pub async fn revoked_credentials_are_listed_until_their_end(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await.id;
    let (first, second) = (kubeconfig(&bench, cluster), kubeconfig(&bench, cluster));
    let mut tx = bench.store.begin().await.unwrap();
    kubeconfigs::insert(&mut tx, &first).await.unwrap();
    kubeconfigs::insert(&mut tx, &second).await.unwrap();
    tx.commit().await.unwrap();
    let mut changes = bench.store.changes();
    let mut tx = bench.store.begin().await.unwrap();
    let at = bench.ambient.now();
    assert!(kubeconfigs::revoke(&mut tx, first.id, at).await.unwrap());
    assert!(kubeconfigs::revoke(&mut tx, first.id, at.plus(HOUR)).await.unwrap());
    assert!(!kubeconfigs::revoke(&mut tx, KubeconfigId::generate(&bench.ambient), at).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(changes.recv().await.unwrap(), Change::Kubeconfigs(cluster));
    let mut sql = bench.store.read().await.unwrap();
    let revoked = Kubeconfig { revoked_at: Some(at), ..first.clone() };
    assert_eq!(kubeconfigs::find(&mut *sql, first.id).await.unwrap().as_ref(), Some(&revoked));
    assert_eq!(kubeconfigs::list(&mut *sql, cluster).await.unwrap(), [second, revoked]);
    let ids = kubeconfigs::revoked_credential_ids(&mut *sql, cluster, at).await.unwrap();
    assert_eq!(ids, [first.credential_id]);
    assert!(kubeconfigs::revoked_credential_ids(&mut *sql, cluster, first.expires_at).await.unwrap().is_empty());
    drop(sql);
    let mut tx = bench.store.begin().await.unwrap();
    assert_eq!(kubeconfigs::prune(&mut tx, at.plus(HOUR * 2)).await.unwrap(), 2);
}

pub async fn settings_and_facts(bench: Bench) {
    let mut tx = bench.store.begin().await.unwrap();
    settings::set(&mut tx, "a", "1").await.unwrap();
    settings::set(&mut tx, "a", "2").await.unwrap();
    settings::set(&mut tx, "b", "3").await.unwrap();
    settings::set(&mut tx, "b", "").await.unwrap();
    assert_eq!(settings::all(tx.sql()).await.unwrap().into_iter().collect::<Vec<_>>(), [("a".into(), "2".into())]);
    assert_eq!(meta::get(tx.sql(), "installation").await.unwrap(), None);
    assert_eq!(meta::put_if_absent(&mut tx, "installation", "x").await.unwrap(), "x");
    assert_eq!(meta::put_if_absent(&mut tx, "installation", "y").await.unwrap(), "x");
    assert_eq!(meta::get(tx.sql(), "installation").await.unwrap().as_deref(), Some("x"));
}

pub async fn answers_are_kept_once(bench: Bench) {
    let answer = Answer { request_hash: vec![1, 2], status: 201, body: "{\"é\":1}".into() };
    let now = bench.ambient.now();
    let mut tx = bench.store.begin().await.unwrap();
    idempotency::insert(&mut tx, "ada", "k", &answer, now).await.unwrap();
    idempotency::insert(&mut tx, "bob", "k", &answer, now.plus(HOUR)).await.unwrap();
    assert!(matches!(idempotency::insert(&mut tx, "ada", "k", &answer, now).await, Err(Error::Exists(_))));
    assert_eq!(idempotency::find(tx.sql(), "ada", "k").await.unwrap(), Some(answer));
    assert_eq!(idempotency::find(tx.sql(), "ada", "other").await.unwrap(), None);
    assert_eq!(idempotency::prune(&mut tx, now.plus(HOUR)).await.unwrap(), 1);
    assert!(idempotency::find(tx.sql(), "bob", "k").await.unwrap().is_some());
}

fn event(project_id: Option<ProjectId>, cluster: Option<ClusterId>, message: &str) -> NewEvent {
    NewEvent {
        project_id,
        cluster: cluster.map(|id| (id, "demo".to_owned())),
        severity: Severity::Warning,
        reason: "ComponentExited".into(),
        message: message.into(),
        actor: Some("ada".into()),
    }
}

pub async fn events_are_one_sequence(bench: Bench) {
    let (a, b) = (bench.project("a").await, bench.project("b").await);
    let cluster = bench.cluster_of(a, "demo", &[]).await.id;
    let mut tx = bench.store.begin().await.unwrap();
    assert_eq!(events::newest(tx.sql()).await.unwrap(), 0);
    let mut ids = Vec::new();
    for (n, (project, cluster)) in [(None, None), (Some(a), Some(cluster)), (Some(b), None), (Some(a), None)].into_iter().enumerate() {
        ids.push(events::append(&mut tx, bench.ambient.now(), event(project, cluster, &n.to_string())).await.unwrap());
    }
    tx.commit().await.unwrap();
    assert!(ids.is_sorted() && ids[0] > 0);
    let mut sql = bench.store.read().await.unwrap();
    assert_eq!(events::newest(&mut *sql).await.unwrap(), ids[3]);
    let filters = [
        (Filter::default(), vec![0, 1, 2, 3]),
        (Filter { projects: Some(vec![b, a]), cluster: None }, vec![1, 2, 3]),
        (Filter { projects: None, cluster: Some(cluster) }, vec![1]),
        (Filter { projects: Some(vec![b]), cluster: Some(cluster) }, vec![]),
        (Filter { projects: Some(vec![]), cluster: None }, vec![]),
    ];
    for (filter, expected) in filters {
        let expected: Vec<i64> = expected.into_iter().map(|n: usize| ids[n]).collect();
        let forwards = events::after(&mut *sql, &filter, 0, 10).await.unwrap();
        assert_eq!(forwards.iter().map(|e| e.id).collect::<Vec<_>>(), expected, "{filter:?}");
        let (mut backwards, _) = all_pages!(1, |page| events::list(&mut *sql, &filter, page));
        backwards.reverse();
        assert_eq!(backwards, forwards);
    }
    let rest = events::after(&mut *sql, &Filter::default(), ids[1], 1).await.unwrap();
    assert_eq!((rest.len(), rest[0].message.as_str(), rest[0].severity), (1, "2", Severity::Warning));
    assert_eq!((rest[0].project_id, rest[0].actor.as_deref()), (Some(b), Some("ada")));
    drop(sql);
    let mut tx = bench.store.begin().await.unwrap();
    assert_eq!(events::prune(&mut tx, bench.ambient.now().plus(HOUR)).await.unwrap(), 4);
    let next = events::append(&mut tx, bench.ambient.now(), event(None, None, "")).await.unwrap();
    assert!(next > ids[3], "an id is never given twice");
}

pub async fn what_is_old_is_pruned_in_batches(bench: Bench) {
    let old = bench.ambient.now();
    let mut tx = bench.store.begin().await.unwrap();
    for n in 0..PRUNE_BATCH + 3 {
        events::append(&mut tx, old, event(None, None, &n.to_string())).await.unwrap();
    }
    events::append(&mut tx, old.plus(HOUR), event(None, None, "young")).await.unwrap();
    for expected in [PRUNE_BATCH, 3, 0] {
        assert_eq!(events::prune(&mut tx, old.plus(HOUR)).await.unwrap(), expected);
    }
    let left = events::after(tx.sql(), &Filter::default(), 0, 10).await.unwrap();
    assert_eq!(left.iter().map(|e| e.message.as_str()).collect::<Vec<_>>(), ["young"]);
}
