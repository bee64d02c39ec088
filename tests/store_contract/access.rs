//! Projects, users, sessions and tokens.

use std::time::Duration;

use kubebyon::domain::user::Role;
use kubebyon::domain::{ProjectId, UserId};
use kubebyon::store::api_tokens::{self, NewApiToken};
use kubebyon::store::{Change, Error, projects, sessions, users};

use crate::bench::{Bench, all_pages};

const HOUR: Duration = Duration::from_secs(3600);

async fn user(bench: &Bench, name: &str, platform_admin: bool) -> UserId {
    bench.clock.advance(Duration::from_millis(1));
    let mut tx = bench.store.begin().await.unwrap();
    let user = users::create(&mut tx, &bench.ambient, name, "$argon2id$x", platform_admin).await.unwrap();
    tx.commit().await.unwrap();
    user.id
}

pub async fn the_default_project_is_there(bench: Bench) {
    let id = bench.default_project().await;
    let mut sql = bench.store.read().await.unwrap();
    let project = projects::find(&mut *sql, id).await.unwrap().unwrap();
    assert_eq!(project.name, "default");
    assert!(project.created_at.as_secs() > 1_700_000_000, "{}", project.created_at);
}

pub async fn projects_page_by_name(bench: Bench) {
    let mut ids: Vec<ProjectId> = Vec::new();
    for name in ["b", "a", "d", "c", "e"] {
        ids.push(bench.project(name).await);
    }
    let mut tx = bench.store.begin().await.unwrap();
    assert!(matches!(projects::create(&mut tx, &bench.ambient, "a").await, Err(Error::Exists(_))));
    drop(tx);
    let mut sql = bench.store.read().await.unwrap();
    let (items, sizes) = all_pages!(2, |page| projects::list(&mut *sql, None, page));
    assert_eq!(items.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d", "default", "e"]);
    assert_eq!(sizes, [2, 2, 2]);
    let (items, sizes) = all_pages!(1, |page| projects::list(&mut *sql, Some(&[ids[0], ids[4]]), page));
    assert_eq!(items.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["b", "e"]);
    assert_eq!(sizes, [1, 1]);
}

pub async fn users_have_roles(bench: Bench) {
    let (a, b) = (bench.project("a").await, bench.project("b").await);
    let (ada, bob) = (user(&bench, "ada", true).await, user(&bench, "bob", false).await);
    let mut changes = bench.store.changes();
    let mut tx = bench.store.begin().await.unwrap();
    assert!(matches!(users::create(&mut tx, &bench.ambient, "bob", "h", false).await, Err(Error::Exists(_))));
    assert!(users::set_role(&mut tx, bob, b, Some(Role::Viewer)).await.unwrap());
    assert!(users::set_role(&mut tx, bob, b, Some(Role::Admin)).await.unwrap());
    assert!(!users::set_role(&mut tx, bob, b, Some(Role::Admin)).await.unwrap(), "it has it already");
    assert!(users::set_role(&mut tx, bob, a, Some(Role::Member)).await.unwrap());
    assert!(users::set_role(&mut tx, ada, a, Some(Role::Member)).await.unwrap());
    assert!(users::set_role(&mut tx, ada, a, None).await.unwrap());
    assert!(!users::set_role(&mut tx, ada, a, None).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(changes.recv().await.unwrap(), Change::Access);
    let mut sql = bench.store.read().await.unwrap();
    let (found, hash) = users::find_by_name(&mut *sql, "bob").await.unwrap().unwrap();
    assert_eq!(hash, "$argon2id$x");
    let roles: Vec<_> = found.roles.iter().map(|r| (r.project.as_str(), r.project_id, r.role)).collect();
    assert_eq!(roles, [("a", a, Role::Member), ("b", b, Role::Admin)]);
    assert_eq!(users::find(&mut *sql, bob).await.unwrap().as_ref(), Some(&found));
    let (items, sizes) = all_pages!(1, |page| users::list(&mut *sql, page));
    assert_eq!(sizes, [1, 1]);
    assert_eq!(items, [users::find(&mut *sql, ada).await.unwrap().unwrap(), found]);
    assert_eq!(users::count_platform_admins(&mut *sql).await.unwrap(), 1);
}

pub async fn sessions_end(bench: Bench) {
    let ada = user(&bench, "ada", false).await;
    let now = bench.ambient.now();
    let mut tx = bench.store.begin().await.unwrap();
    let id = sessions::create(&mut tx, &bench.ambient, ada, &[1; 32], now.plus(HOUR)).await.unwrap();
    assert_eq!(sessions::find(tx.sql(), &[1; 32], now).await.unwrap(), Some((id, ada)));
    assert_eq!(sessions::find(tx.sql(), &[2; 32], now).await.unwrap(), None);
    assert_eq!(sessions::find(tx.sql(), &[1; 32], now.plus(HOUR)).await.unwrap(), None);
    assert_eq!(sessions::prune(&mut tx, now.plus(HOUR)).await.unwrap(), 0);
    assert!(sessions::remove(&mut tx, id).await.unwrap());
    assert!(!sessions::remove(&mut tx, id).await.unwrap());
    sessions::create(&mut tx, &bench.ambient, ada, &[1; 32], now.plus(HOUR)).await.unwrap();
    assert_eq!(sessions::prune(&mut tx, now.plus(2 * HOUR)).await.unwrap(), 1);
}

pub async fn what_bars_a_user_ends_sessions(bench: Bench) {
    let ada = user(&bench, "ada", true).await;
    let now = bench.ambient.now();
    let mut tx = bench.store.begin().await.unwrap();
    for (n, bar) in [true, false].into_iter().enumerate() {
        let secret = [u8::try_from(n).unwrap(); 32];
        sessions::create(&mut tx, &bench.ambient, ada, &secret, now.plus(HOUR)).await.unwrap();
        if bar {
            assert!(users::set_disabled(&mut tx, ada, true).await.unwrap());
            assert_eq!(users::count_platform_admins(tx.sql()).await.unwrap(), 0);
            assert!(users::set_disabled(&mut tx, ada, false).await.unwrap());
        } else {
            assert!(users::set_password_hash(&mut tx, ada, "other").await.unwrap());
        }
        assert_eq!(sessions::find(tx.sql(), &secret, now).await.unwrap(), None);
    }
    assert_eq!(users::find_by_name(tx.sql(), "ada").await.unwrap().unwrap().1, "other");
    assert!(users::set_platform_admin(&mut tx, ada, false).await.unwrap());
    assert!(!users::find(tx.sql(), ada).await.unwrap().unwrap().platform_admin);
}

pub async fn tokens_are_found_by_their_hash(bench: Bench) {
    let ada = user(&bench, "ada", false).await;
    let now = bench.ambient.now();
    let new =
        |name: &str| NewApiToken { user_id: ada, name: name.to_owned(), role: Role::Member, project_id: None, expires_at: now.plus(HOUR) };
    let mut tx = bench.store.begin().await.unwrap();
    let first = api_tokens::create(&mut tx, &bench.ambient, new("first"), &[1; 32]).await.unwrap();
    bench.clock.advance(Duration::from_millis(1));
    let second = api_tokens::create(&mut tx, &bench.ambient, new("second"), &[2; 32]).await.unwrap();
    assert_eq!(api_tokens::find(tx.sql(), &[1; 32], now).await.unwrap().as_ref(), Some(&first));
    assert_eq!(api_tokens::find(tx.sql(), &[1; 32], now.plus(HOUR)).await.unwrap(), None);
    assert_eq!(api_tokens::find_by_id(tx.sql(), second.id).await.unwrap().as_ref(), Some(&second));
    assert_eq!(api_tokens::list(tx.sql(), Some(ada)).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(api_tokens::list(tx.sql(), None).await.unwrap().len(), 2);
    for (at, used) in [(0, 0), (59, 0), (60, 60), (30, 30)] {
        let seconds = |n| now.plus(Duration::from_secs(n));
        api_tokens::touch(&mut tx, first.id, seconds(at)).await.unwrap();
        let found = api_tokens::find_by_id(tx.sql(), first.id).await.unwrap().unwrap();
        assert_eq!(found.last_used_at, Some(seconds(used)), "{at}");
    }
    users::set_disabled(&mut tx, ada, true).await.unwrap();
    assert_eq!(api_tokens::find(tx.sql(), &[2; 32], now).await.unwrap(), None);
    assert!(api_tokens::remove(&mut tx, second.id).await.unwrap());
    assert!(!api_tokens::remove(&mut tx, second.id).await.unwrap());
}

pub async fn removing_a_user_removes_what_is_theirs(bench: Bench) {
    let (ada, project) = (user(&bench, "ada", false).await, bench.project("a").await);
    let until = bench.ambient.now().plus(HOUR);
    let mut tx = bench.store.begin().await.unwrap();
    users::set_role(&mut tx, ada, project, Some(Role::Admin)).await.unwrap();
    sessions::create(&mut tx, &bench.ambient, ada, &[1; 32], until).await.unwrap();
    let new = NewApiToken { user_id: ada, name: "t".into(), role: Role::Admin, project_id: Some(project), expires_at: until };
    api_tokens::create(&mut tx, &bench.ambient, new, &[1; 32]).await.unwrap();
    assert!(users::remove(&mut tx, ada).await.unwrap());
    assert!(!users::remove(&mut tx, ada).await.unwrap());
    tx.commit().await.unwrap();
    let mut sql = bench.store.read().await.unwrap();
    assert!(api_tokens::list(&mut *sql, None).await.unwrap().is_empty());
    assert_eq!(sessions::find(&mut *sql, &[1; 32], bench.ambient.now()).await.unwrap(), None);
    assert_eq!(users::find(&mut *sql, ada).await.unwrap(), None);
}
