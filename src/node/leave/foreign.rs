//! A containerd of the owner's own: the pods of our kubelet in it end and go, everything else in it stays.
//!
//! A pod is ours when the kubelet's folder knows it. Images that were pulled stay: others may use them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::node::join::service::run;
use crate::node::layout::Layout;

/// The namespace of Kubernetes in containerd.
const NAMESPACE: &str = "k8s.io";

/// Ends and removes our pods' containers; gives the network namespaces that they were in, and what failed.
pub async fn stop_pods(layout: &Layout, socket: &str) -> (BTreeSet<PathBuf>, Vec<anyhow::Error>) {
    let mut namespaces = BTreeSet::new();
    let mut failures = Vec::new();
    if let Err(error) = stop(layout, socket, &mut namespaces, &mut failures).await {
        failures
            .push(error.context(format!(
                "pods in the containerd at {socket} are left as they are: `ctr -n {NAMESPACE} containers ls` shows them"
            )));
    }
    (namespaces, failures)
}

async fn stop(layout: &Layout, socket: &str, namespaces: &mut BTreeSet<PathBuf>, failures: &mut Vec<anyhow::Error>) -> anyhow::Result<()> {
    let ctr = layout.bin_dir().join("ctr");
    let call = async |args: &[&str]| run(&ctr, &[&["--address", socket, "--namespace", NAMESPACE], args].concat()).await;
    let pods = pods(layout);
    let mut ours = Vec::new();
    for id in call(&["containers", "ls", "--quiet"]).await?.lines().map(str::trim).filter(|id| !id.is_empty()) {
        let Ok(info) = call(&["containers", "info", id]).await else { continue };
        let info: serde_json::Value = serde_json::from_str(&info).context("ctr's answer is no JSON")?;
        let label = |name: &str| info["Labels"][name].as_str().unwrap_or_default().to_owned();
        if pods.contains(&label("io.kubernetes.pod.uid")) {
            ours.push((label("io.cri-containerd.kind") == "sandbox", id.to_owned()));
        }
    }
    // Containers before the sandboxes that they are in.
    ours.sort();
    let tasks = call(&["tasks", "ls"]).await.unwrap_or_default();
    for (_, id) in &ours {
        if let Some(pid) = pid(&tasks, id) {
            namespaces.extend(std::fs::read_link(format!("/proc/{pid}/ns/net")));
        }
    }
    let own = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    namespaces.remove(&own);
    for (_, id) in &ours {
        let _ = call(&["tasks", "kill", "--signal", "SIGKILL", "--all", id]).await;
        let _ = call(&["tasks", "rm", "--force", id]).await;
        failures.extend(call(&["containers", "rm", id]).await.err());
    }
    Ok(())
}

/// The pods that the kubelet's folder knows.
fn pods(layout: &Layout) -> BTreeSet<String> {
    let entries = std::fs::read_dir(layout.kubelet_dir().join("pods")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| !name.is_empty()).collect()
}

/// The pid of a task in what `ctr tasks ls` prints.
fn pid(tasks: &str, id: &str) -> Option<i32> {
    tasks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|words| words.first() == Some(&id))?.get(1)?.parse().ok()
}

/// Whether that socket is of a containerd of the owner's.
pub fn is_foreign(layout: &Layout, socket: Option<&str>) -> bool {
    socket.is_some_and(|socket| Path::new(socket) != layout.containerd_socket())
}
