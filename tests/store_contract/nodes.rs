//! Join tokens, nodes, their certificates and keys, and the ends of memberships.

use std::time::Duration;

use kubebyon::domain::job::JobState;
use kubebyon::domain::join::{DEFAULT_TTL, JoinToken, TOMBSTONE_LIFE};
use kubebyon::domain::node::{Fate, Machine, NodeStatus};
use kubebyon::domain::work::{REMOVE_NODE, RemoveNodeRequest};
use kubebyon::domain::{Cluster, JoinTokenId, Node, NodeId};
use kubebyon::store::nodes::{self, NodeCertificate};
use kubebyon::store::{Change, Error, Tx, clusters, join_tokens};

use crate::bench::Bench;

const HOUR: Duration = Duration::from_secs(3600);

pub fn token(bench: &Bench, cluster: &Cluster, uses: u32) -> JoinToken {
    bench.clock.advance(Duration::from_millis(1));
    let now = bench.ambient.now();
    JoinToken {
        id: JoinTokenId::generate(&bench.ambient),
        cluster_id: cluster.id,
        owner: "ada".into(),
        created_at: now,
        expires_at: now.plus(DEFAULT_TTL),
        uses,
        used: 0,
        revoked_at: None,
    }
}

fn node(bench: &Bench, cluster: &Cluster, name: &str, address: &str) -> Node {
    bench.clock.advance(Duration::from_millis(1));
    Node {
        id: NodeId::generate(&bench.ambient),
        cluster_id: cluster.id,
        name: name.into(),
        address: address.parse().unwrap(),
        address_assigned: false,
        machine: Machine { operating_system: "Debian 集群".into(), ..Machine::default() },
        labels: [("team".to_owned(), "web".to_owned())].into(),
        taints: vec![kubebyon::domain::node::Taint { key: "a".into(), value: String::new(), effect: "NoSchedule".into() }],
        status: NodeStatus::default(),
        join_token_id: Some(JoinTokenId::generate(&bench.ambient)),
        joined_at: bench.ambient.now(),
        removed_at: None,
        public_key: format!("key of {name}").into_bytes(),
    }
}

fn certificate(bench: &Bench, node: &Node, fingerprint: &str) -> NodeCertificate {
    NodeCertificate {
        fingerprint: fingerprint.into(),
        node_id: node.id,
        cluster_id: node.cluster_id,
        not_after: bench.ambient.now().plus(HOUR),
        revoked_at: None,
    }
}

pub async fn insert(bench: &Bench, cluster: &Cluster, name: &str, address: &str) -> Node {
    let node = node(bench, cluster, name, address);
    let mut tx = bench.store.begin().await.unwrap();
    nodes::insert(&mut tx, &node).await.unwrap();
    tx.commit().await.unwrap();
    node
}

/// What a transaction tells.
async fn told<'a>(bench: &Bench, work: impl AsyncFnOnce(&mut Tx) + 'a) -> Vec<Change> {
    let mut changes = bench.store.changes();
    let mut tx = bench.store.begin().await.unwrap();
    work(&mut tx).await;
    tx.commit().await.unwrap();
    std::iter::from_fn(|| changes.try_recv().ok()).collect()
}

pub async fn tokens_are_used_until_they_end(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let (one, two) = (token(&bench, &cluster, 2), token(&bench, &cluster, 5));
    let now = bench.ambient.now();
    let inserted = told(&bench, async |tx| join_tokens::insert(tx, &one, &[7; 32]).await.unwrap()).await;
    assert_eq!(inserted, [Change::Nodes(cluster.id)]);
    let mut tx = bench.store.begin().await.unwrap();
    assert!(matches!(join_tokens::insert(&mut tx, &one, &[8; 32]).await, Err(Error::Exists(_))));
    join_tokens::insert(&mut tx, &two, &[9; 32]).await.unwrap();
    assert_eq!(join_tokens::find(tx.sql(), one.id).await.unwrap(), Some((one.clone(), vec![7; 32])));
    assert_eq!(join_tokens::list(tx.sql(), cluster.id).await.unwrap(), [two.clone(), one.clone()]);
    for expected in [true, true, false] {
        assert_eq!(join_tokens::use_once(&mut tx, one.id, now).await.unwrap(), expected);
    }
    assert_eq!(join_tokens::find(tx.sql(), one.id).await.unwrap().unwrap().0.used, 2);
    assert!(!join_tokens::use_once(&mut tx, two.id, two.expires_at).await.unwrap(), "it has ended");
    assert!(join_tokens::use_once(&mut tx, two.id, now).await.unwrap());
    assert!(join_tokens::revoke(&mut tx, two.id, now).await.unwrap());
    assert!(join_tokens::revoke(&mut tx, two.id, now.plus(HOUR)).await.unwrap());
    assert!(!join_tokens::use_once(&mut tx, two.id, now).await.unwrap(), "it was revoked");
    assert_eq!(join_tokens::find(tx.sql(), two.id).await.unwrap().unwrap().0.revoked_at, Some(now));
    let unknown = JoinTokenId::generate(&bench.ambient);
    assert!(!join_tokens::use_once(&mut tx, unknown, now).await.unwrap() && !join_tokens::revoke(&mut tx, unknown, now).await.unwrap());
    assert_eq!(join_tokens::prune(&mut tx, now).await.unwrap(), 0);
    assert_eq!(join_tokens::prune(&mut tx, now.plus(Duration::from_millis(1))).await.unwrap(), 1, "the revoked one");
    assert_eq!(join_tokens::prune(&mut tx, one.expires_at.plus(HOUR)).await.unwrap(), 1);
}

pub async fn of_many_who_use_a_token_at_once_as_many_may_as_it_says(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let token = token(&bench, &cluster, 3);
    told(&bench, async |tx| join_tokens::insert(tx, &token, &[7; 32]).await.unwrap()).await;
    let tries: Vec<_> = (0..10)
        .map(|_| {
            let (store, id, now) = (bench.store.clone(), token.id, bench.ambient.now());
            tokio::spawn(async move {
                let mut tx = store.begin().await.unwrap();
                let used = join_tokens::use_once(&mut tx, id, now).await.unwrap();
                tx.commit().await.unwrap();
                used
            })
        })
        .collect();
    let mut used = 0;
    for one in tries {
        used += usize::from(one.await.unwrap());
    }
    assert_eq!(used, 3);
}

pub async fn a_name_an_address_and_a_key_are_one_nodes(bench: Bench) {
    let (cluster, other) = (bench.cluster("demo", &[]).await, bench.cluster("other", &[]).await);
    let first = insert(&bench, &cluster, "b", "192.168.1.10").await;
    insert(&bench, &other, "b", "192.168.1.10").await;
    let second = insert(&bench, &cluster, "a", "192.168.1.11").await;
    let mut tx = bench.store.begin().await.unwrap();
    let same_key = Node { public_key: first.public_key.clone(), ..node(&bench, &cluster, "c", "192.168.1.12") };
    for clash in [node(&bench, &cluster, "b", "192.168.1.12"), node(&bench, &cluster, "c", "192.168.1.10"), same_key] {
        assert!(matches!(nodes::insert(&mut tx, &clash).await, Err(Error::Exists(_))), "{clash:?}");
    }
    let sql = tx.sql();
    assert_eq!(nodes::list(sql, cluster.id).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(nodes::find(sql, first.id).await.unwrap().as_ref(), Some(&first));
    assert_eq!(nodes::find_by_name(sql, cluster.id, "b").await.unwrap().as_ref(), Some(&first));
    assert_eq!(nodes::find_by_name(sql, cluster.id, "c").await.unwrap(), None);
    assert_eq!(nodes::find_by_key(sql, cluster.id, b"key of a").await.unwrap(), Some(second.clone()));
    assert_eq!(nodes::find_by_key(sql, cluster.id, b"another").await.unwrap(), None);
    assert!(nodes::address_taken(sql, cluster.id, first.address).await.unwrap());
    assert!(!nodes::address_taken(sql, other.id, second.address).await.unwrap());
    assert!(!nodes::set_address(&mut tx, second.id, first.address, false).await.unwrap(), "the first has it");
    assert!(nodes::set_address(&mut tx, second.id, "192.168.1.99".parse().unwrap(), false).await.unwrap());
    assert!(nodes::set_address(&mut tx, second.id, "192.168.1.99".parse().unwrap(), false).await.unwrap(), "its own is not taken");
    assert!(!nodes::set_address(&mut tx, NodeId::generate(&bench.ambient), "192.168.1.98".parse().unwrap(), false).await.unwrap());
}

pub async fn an_address_that_another_has_is_replaced_by_an_assigned_one(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let first = insert(&bench, &cluster, "a", "192.168.1.10").await;
    let newcomer = node(&bench, &cluster, "b", "192.168.1.10");
    let mut tx = bench.store.begin().await.unwrap();
    let free = nodes::choose_address(tx.sql(), &cluster, newcomer.id, "::ffff:192.168.1.11".parse().unwrap()).await.unwrap();
    assert_eq!(free, ("192.168.1.11".parse().unwrap(), false));
    assert_eq!(nodes::choose_address(tx.sql(), &cluster, first.id, first.address).await.unwrap(), (first.address, false), "its own");
    let (address, assigned) = nodes::choose_address(tx.sql(), &cluster, newcomer.id, first.address).await.unwrap();
    assert!(assigned && address != first.address);
    nodes::insert(&mut tx, &Node { address, address_assigned: true, ..newcomer.clone() }).await.unwrap();
    // The same again for itself, another for another.
    assert_eq!(nodes::choose_address(tx.sql(), &cluster, newcomer.id, first.address).await.unwrap(), (address, true));
    assert!(nodes::set_address(&mut tx, first.id, "192.168.1.12".parse().unwrap(), false).await.unwrap());
    assert_eq!(nodes::choose_address(tx.sql(), &cluster, newcomer.id, first.address).await.unwrap(), (first.address, false));
}

pub async fn what_is_known_of_a_node_is_written_when_it_changed(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let node = insert(&bench, &cluster, "a", "192.168.1.10").await;
    let status = NodeStatus { ready: true, underlay: vec![node.address], ..NodeStatus::default() };
    let machine = Machine { kernel: "6.1".into(), ..node.machine.clone() };
    for expected in [vec![Change::Nodes(cluster.id)], vec![]] {
        assert_eq!(told(&bench, async |tx| nodes::set_status(tx, node.id, &status).await.unwrap()).await, expected);
        assert_eq!(told(&bench, async |tx| nodes::set_machine(tx, node.id, &machine).await.unwrap()).await, expected);
        let asked = async |tx: &mut Tx| nodes::set_asked(tx, node.id, &cluster.labels, &[]).await.unwrap();
        assert_eq!(told(&bench, asked).await, expected);
    }
    let mut sql = bench.store.read().await.unwrap();
    let known = nodes::find(&mut *sql, node.id).await.unwrap().unwrap();
    assert_eq!(known, Node { status, machine, labels: cluster.labels.clone(), taints: Vec::new(), ..node });
}

pub async fn certificates_are_good_until_they_end_or_are_revoked(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let (a, b) = (insert(&bench, &cluster, "a", "192.168.1.10").await, insert(&bench, &cluster, "b", "192.168.1.11").await);
    let (one, two, three) = (certificate(&bench, &a, "aa"), certificate(&bench, &a, "ab"), certificate(&bench, &b, "ba"));
    let now = bench.ambient.now();
    let mut tx = bench.store.begin().await.unwrap();
    for certificate in [&one, &one, &two, &three] {
        nodes::add_certificate(&mut tx, certificate).await.unwrap();
    }
    assert_eq!(nodes::certificates(tx.sql(), cluster.id, now).await.unwrap(), [one.clone(), two.clone(), three.clone()]);
    assert!(nodes::certificates(tx.sql(), cluster.id, one.not_after).await.unwrap().is_empty(), "they have ended");
    assert!(nodes::revoked_credential_ids(tx.sql(), cluster.id, now).await.unwrap().is_empty());
    nodes::revoke_certificates(&mut tx, a.id, now).await.unwrap();
    nodes::revoke_certificates(&mut tx, a.id, now.plus(HOUR)).await.unwrap();
    assert_eq!(nodes::certificates(tx.sql(), cluster.id, now).await.unwrap(), [three]);
    assert_eq!(nodes::revoked_credential_ids(tx.sql(), cluster.id, now).await.unwrap(), ["X509SHA256=aa", "X509SHA256=ab"]);
    assert!(nodes::revoked_credential_ids(tx.sql(), cluster.id, one.not_after).await.unwrap().is_empty(), "they have ended");
    let issued = nodes::issued_certificates(tx.sql(), a.id).await.unwrap();
    assert_eq!(issued.iter().map(|c| c.revoked_at).collect::<Vec<_>>(), [Some(now), Some(now)]);
}

pub async fn a_membership_that_ended_gets_no_certificate(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let other = bench.cluster("other", &[]).await;
    let node = insert(&bench, &cluster, "a", "192.168.1.10").await;
    let now = bench.ambient.now();
    let mut tx = bench.store.begin().await.unwrap();
    let elsewhere = NodeCertificate { cluster_id: other.id, ..certificate(&bench, &node, "00") };
    assert!(matches!(nodes::add_certificate(&mut tx, &elsewhere).await, Err(Error::Gone(_))), "it is of another cluster");
    nodes::add_certificate(&mut tx, &certificate(&bench, &node, "aa")).await.unwrap();
    nodes::add_key(&mut tx, node.id, b"renewed", now.plus(HOUR)).await.unwrap();
    assert_eq!(nodes::membership(tx.sql(), node.id).await.unwrap().unwrap().fate, Fate::Member);
    nodes::end(&mut tx, node.id, Fate::Replaced, now).await.unwrap();
    assert!(nodes::find(tx.sql(), node.id).await.unwrap().is_some(), "the row, and the name, stay until it is out");
    assert!(matches!(nodes::add_certificate(&mut tx, &certificate(&bench, &node, "bb")).await, Err(Error::Gone(_))));
    nodes::remove(&mut tx, node.id, Fate::Removed, now.plus(HOUR)).await.unwrap();
    nodes::remove(&mut tx, node.id, Fate::Left, now.plus(HOUR)).await.unwrap();
    assert!(nodes::find(tx.sql(), node.id).await.unwrap().is_none());
    assert!(matches!(nodes::add_certificate(&mut tx, &certificate(&bench, &node, "bb")).await, Err(Error::Gone(_))));
    assert_eq!(nodes::revoked_credential_ids(tx.sql(), cluster.id, now).await.unwrap(), ["X509SHA256=aa"], "it is refused still");
    let end = nodes::tombstone(tx.sql(), node.id).await.unwrap().unwrap();
    assert_eq!((end.fate, end.at, end.name.as_str(), end.cluster.as_str()), (Fate::Replaced, now, "a", "demo"));
    assert_eq!(nodes::tombstones(tx.sql(), cluster.id).await.unwrap(), [end]);
    let known = nodes::membership(tx.sql(), node.id).await.unwrap().unwrap();
    assert_eq!((known.fate, known.public_keys), (Fate::Replaced, vec![b"renewed".to_vec(), b"key of a".to_vec()]));
    // Its name, address and key are free again.
    nodes::insert(&mut tx, &Node { id: NodeId::generate(&bench.ambient), ..node.clone() }).await.unwrap();
    assert_eq!(nodes::prune(&mut tx, now).await.unwrap(), 0);
    assert_eq!(nodes::prune(&mut tx, now.plus(TOMBSTONE_LIFE)).await.unwrap(), 2, "the end and the certificate");
    assert_eq!(nodes::membership(tx.sql(), node.id).await.unwrap(), None);
    assert!(nodes::keys(tx.sql(), node.id).await.unwrap().is_empty());
}

pub async fn the_newest_keys_of_a_node_are_kept(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let node = insert(&bench, &cluster, "a", "192.168.1.10").await;
    let mut tx = bench.store.begin().await.unwrap();
    for n in 1..=9u8 {
        nodes::add_key(&mut tx, node.id, &[n], bench.ambient.now().plus(HOUR * n.into())).await.unwrap();
    }
    assert_eq!(nodes::keys(tx.sql(), node.id).await.unwrap(), [[9], [8], [7], [6]]);
    assert_eq!(nodes::find_by_key(tx.sql(), cluster.id, &[9]).await.unwrap().map(|n| n.id), Some(node.id), "a renewed key, too");
    assert_eq!(nodes::find_by_key(tx.sql(), cluster.id, &[5]).await.unwrap(), None);
}

pub async fn nodes_of_a_deleted_cluster_are_remembered(bench: Bench) {
    let (gone, kept) = (bench.cluster("gone", &[]).await, bench.cluster("kept", &[]).await);
    let now = bench.ambient.now();
    let mut of = Vec::new();
    for cluster in [&gone, &kept] {
        for (name, address) in [("a", "192.168.1.10"), ("b", "192.168.1.11")] {
            let node = insert(&bench, cluster, name, address).await;
            let mut tx = bench.store.begin().await.unwrap();
            nodes::add_certificate(&mut tx, &certificate(&bench, &node, &format!("{name}{}", cluster.name))).await.unwrap();
            tx.commit().await.unwrap();
            of.push(node);
        }
        told(&bench, async |tx| join_tokens::insert(tx, &token(&bench, cluster, 1), &[1; 32]).await.unwrap()).await;
    }
    told(&bench, async |tx| nodes::end(tx, of[0].id, Fate::Left, now).await.unwrap()).await;
    told(&bench, async |tx| drop(clusters::mark_deleted(tx, &bench.ambient, gone.id, None).await.unwrap())).await;
    let fate = async |id| nodes::membership(&mut *bench.store.read().await.unwrap(), id).await.unwrap().unwrap().fate;
    assert_eq!((fate(of[1].id).await, fate(of[2].id).await), (Fate::ClusterDeleted, Fate::Member), "while it is deleted, already");
    let changes = told(&bench, async |tx| clusters::remove(tx, gone.id, now).await.unwrap()).await;
    assert!(changes.contains(&Change::Nodes(gone.id)) && !changes.contains(&Change::Nodes(kept.id)), "{changes:?}");
    let mut sql = bench.store.read().await.unwrap();
    for (cluster, count) in [(&gone, 0), (&kept, 2)] {
        assert_eq!(nodes::list(&mut *sql, cluster.id).await.unwrap().len(), count);
        assert_eq!(nodes::certificates(&mut *sql, cluster.id, now).await.unwrap().len(), count);
        assert_eq!(join_tokens::list(&mut *sql, cluster.id).await.unwrap().len(), count / 2);
    }
    let ends = nodes::tombstones(&mut *sql, gone.id).await.unwrap();
    assert_eq!(
        ends.iter().map(|end| (end.node_id, end.fate)).collect::<Vec<_>>(),
        [(of[0].id, Fate::Left), (of[1].id, Fate::ClusterDeleted)]
    );
    let known = nodes::membership(&mut *sql, of[1].id).await.unwrap().unwrap();
    assert_eq!((known.cluster.as_str(), known.public_keys), ("gone", vec![b"key of b".to_vec()]), "a machine can still prove who it was");
}

pub async fn a_removal_is_asked_for_with_its_job(bench: Bench) {
    let cluster = bench.cluster("demo", &[]).await;
    let node = insert(&bench, &cluster, "a", "192.168.1.10").await;
    let ask = async |tx: &mut Tx| nodes::ask_removal(tx, &bench.ambient, &node, Fate::Removed, HOUR).await;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let changes = told(&bench, async |tx| jobs.push(ask(tx).await.unwrap())).await;
        assert_eq!(changes, [Change::Nodes(cluster.id), Change::JobEnqueued]);
    }
    assert_ne!(jobs[0], jobs[1], "one that ended badly does not stand in the way");
    let job = bench.job(jobs[0]).await;
    assert_eq!(
        (job.kind.as_str(), job.cluster_id, job.host.as_deref(), job.state),
        (REMOVE_NODE, Some(cluster.id), Some("one"), JobState::Pending)
    );
    let mut tx = bench.store.begin().await.unwrap();
    let mut rows = tx.sql().query("select payload from jobs where id = $1", vec![jobs[0].into()]).await.unwrap();
    let request: RemoveNodeRequest = rows.pop().unwrap().take_json(0).unwrap();
    assert_eq!(request, RemoveNodeRequest { node: node.id, fate: Fate::Removed, drain_seconds: 3600 });
    let removed_at = nodes::find(tx.sql(), node.id).await.unwrap().unwrap().removed_at;
    assert_eq!(removed_at, Some(bench.ambient.now()));
    nodes::remove(&mut tx, node.id, Fate::Removed, bench.ambient.now()).await.unwrap();
    assert!(matches!(ask(&mut tx).await, Err(Error::Gone(_))));
}
