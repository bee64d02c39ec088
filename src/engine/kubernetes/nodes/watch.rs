//! A list of Kubernetes objects that is followed: read whole, then as it changes.
//!
//! Guarantees: what is asked for comes once after each start and then with each change; a watch that ends goes on where it was, one that
//! fell behind begins anew, and a failing API server is asked less and less often. A broken connection is noticed by the client's own
//! deadline.

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Scope;

/// How long one watch lasts, in seconds; the client's own deadline is longer.
const WATCH_SECONDS: u32 = 240;
/// The pause after a failure, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A watch that lasted so long was well.
const WELL: Duration = Duration::from_secs(30);
/// How many objects are read at a time.
const PAGE: u32 = 250;

/// What happened to an object.
#[derive(Debug, Clone)]
pub enum Seen<K> {
    /// It is there, or is changed.
    There(K),
    /// It is gone.
    Gone(K),
    /// All that was there has been told; whatever was not among it is gone.
    Whole(Vec<String>),
}

/// Follows all objects of a kind, for ever. `each` is awaited for one after the other.
pub async fn follow<K, F>(scope: &Scope, mut each: impl FnMut(Seen<K>) -> F + Send)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let mut pause = PAUSE.0;
    loop {
        scope.control_plane.well().await;
        let begun = Instant::now();
        if let Err(error) = once(scope, &mut each).await {
            tracing::debug!(cluster = %scope.cluster, kind = %K::kind(&()), error = format!("{error:#}"), "a watch ended; it begins anew");
        }
        if begun.elapsed() >= WELL {
            pause = PAUSE.0;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Reads the list and follows it until that is no longer possible.
async fn once<K, F>(scope: &Scope, each: &mut (impl FnMut(Seen<K>) -> F + Send)) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let api = Api::<K>::all(scope.control_plane.client().await?);
    let mut list = ListParams::default().limit(PAGE);
    let (mut names, mut version);
    names = Vec::new();
    loop {
        let page = api.list(&list).await?;
        version = page.metadata.resource_version.clone().unwrap_or_default();
        for object in page.items {
            names.push(object.name_any());
            each(Seen::There(object)).await;
        }
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => list.continue_token = Some(more),
            None => break,
        }
    }
    each(Seen::Whole(names)).await;
    loop {
        // A fresh client: its certificate lives for an hour, and a watch is judged only when it begins.
        let api = Api::<K>::all(scope.control_plane.patient_client().await?);
        let params = WatchParams { timeout: Some(WATCH_SECONDS), bookmarks: true, ..WatchParams::default() };
        let mut events = pin!(api.watch(&params, &version).await?);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.resource_version().unwrap_or(version);
                    each(Seen::There(object)).await;
                }
                WatchEvent::Deleted(object) => {
                    version = object.resource_version().unwrap_or(version);
                    each(Seen::Gone(object)).await;
                }
                WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                // 410: what was asked for is compacted; the list is read anew.
                WatchEvent::Error(status) if status.code == 410 => return Ok(()),
                WatchEvent::Error(status) => anyhow::bail!("the API server ends the watch: {}", status.message),
            }
        }
    }
}
