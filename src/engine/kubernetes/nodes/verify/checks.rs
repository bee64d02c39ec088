//! The steps of a verification.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node as KubernetesNode, Pod};
use kube::api::{AttachParams, DeleteParams, ListParams, LogParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::super::super::addons::coredns;
use super::super::super::{EngineError, failed};
use super::{API_SERVER_REACHED, Found, NAME_RESOLVED, NAMESPACE, Scope, WAITING_FOR_CNI, pod};
use crate::domain::Node;
use crate::domain::cluster::Addon;
use crate::tunnel::protocol::Aspect;

/// How long a kubelet that has just started may take to be Ready.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How long the pod may take to run.
const RUNS_WITHIN: Duration = Duration::from_secs(90);
/// How long the pod may take to tell what it found.
const TELLS_WITHIN: Duration = Duration::from_secs(180);
/// How long the API server may keep failing to read a log.
const LOGS_WITHIN: Duration = Duration::from_secs(30);
/// How long a command may take.
const EXEC_WITHIN: Duration = Duration::from_secs(20);
/// How often something is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The most that is read of the log, in bytes.
const MAX_LOG: i64 = 64 << 10;

/// Runs the steps; what cannot even be asked is a step that failed.
pub(super) async fn run(scope: &Scope, node: &Node, found: &mut Found) {
    let client = match scope.control_plane.client().await {
        Ok(client) => client,
        Err(error) => return found.fail("ApiServerAsked", "ApiServerUnreachable", format!("{error:#}")),
    };
    clean(&client, node).await;
    let steps = async {
        if ready(scope, &client, node, found).await?
            && let Some(pod) = create(scope, &client, node, found).await?
            && runs(&client, &pod, found).await?
            && tells(&client, node, &pod, found).await?
        {
            execs(scope, &pod, found).await?;
        }
        Ok::<(), EngineError>(())
    };
    let ended = steps.await;
    clean(&client, node).await;
    if let Err(error) = ended {
        found.fail("ApiServerAsked", "ApiServerUnreachable", format!("{error:#}"));
    }
}

/// Takes away the pods that verify this node.
pub(super) async fn clean(client: &Client, node: &Node) {
    let list = ListParams::default().labels(&pod::selector(node.id));
    if let Err(error) = pods(client).delete_collection(&DeleteParams::default(), &list).await {
        tracing::debug!(node = %node.id, %error, "pods that verified a node could not be taken away");
    }
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Waits until the kubelet is Ready. `false`: it is not, or waits for a pod network of its owner's.
async fn ready(scope: &Scope, client: &Client, node: &Node, found: &mut Found) -> Result<bool, EngineError> {
    let api = Api::<KubernetesNode>::all(client.clone());
    let end = Instant::now() + READY_WITHIN;
    loop {
        let object = api.get_opt(&node.name).await.map_err(|e| failed(format!("node {}", node.name), e))?;
        let registered = object.is_some();
        let conditions = object.and_then(|o| o.status).and_then(|s| s.conditions).unwrap_or_default();
        let condition = conditions.into_iter().find(|c| c.type_ == "Ready");
        if condition.as_ref().is_some_and(|c| c.status == "True") {
            found.well("NodeReady", "the kubelet is registered and Ready");
            return Ok(true);
        }
        let why = condition.and_then(|c| c.message).unwrap_or_default();
        if scope.spec.cni == Addon::None && why.contains("cni") {
            found.add(Aspect {
                kind: "PodNetwork".to_owned(),
                status: true,
                reason: WAITING_FOR_CNI.to_owned(),
                message: "joined, waiting for your CNI: install it, then run `kubebyon doctor` on the node".to_owned(),
            });
            return Ok(false);
        }
        if Instant::now() >= end {
            let message = if registered {
                format!("the kubelet is not Ready: {why}")
            } else {
                "the kubelet has not registered the node: see its log in /var/log/kubebyon-node".to_owned()
            };
            found.fail("NodeReady", if registered { "KubeletNotReady" } else { "NotRegistered" }, message);
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Makes the pod. What a tenant's own policy refuses is named as that.
async fn create(scope: &Scope, client: &Client, node: &Node, found: &mut Found) -> Result<Option<String>, EngineError> {
    for manifest in pod::surroundings() {
        if let Err(error) = manifest.ensure(client).await {
            found.fail("PodCreated", "PodRefused", format!("{error:#}"));
            return Ok(None);
        }
    }
    let wanted = pod::manifest(node, &scope.verify_image)?;
    match pods(client).create(&PostParams::default(), &wanted).await {
        Ok(made) => {
            found.well("PodCreated", format!("pod {NAMESPACE}/{} was made for this node", made.name_any()));
            Ok(Some(made.name_any()))
        }
        Err(kube::Error::Api(status)) => {
            let (reason, remedy) = refusal(&status.message);
            found.fail("PodCreated", reason, format!("{remedy}: {}", status.message));
            Ok(None)
        }
        Err(error) => Err(failed("a pod that verifies a node", error)),
    }
}

/// Whose refusal of a pod that is, and what to do.
fn refusal(message: &str) -> (&'static str, &'static str) {
    if message.contains("violates PodSecurity") {
        (
            "PodSecurity",
            "the cluster's Pod Security admission refuses pods of the namespace kubebyon-system, though they satisfy `restricted`",
        )
    } else if message.contains("exceeded quota") {
        ("ResourceQuota", "a ResourceQuota of the namespace kubebyon-system refuses the pod; raise or remove it")
    } else if message.contains("failed calling webhook") {
        ("WebhookFailed", "an admission webhook of the cluster does not answer; mend it, or exempt the namespace kubebyon-system")
    } else if message.contains("admission webhook") || message.contains("ValidatingAdmissionPolicy") {
        ("AdmissionDenied", "an admission policy of the cluster refuses the pod; exempt the namespace kubebyon-system")
    } else {
        ("PodRefused", "the API server refuses the pod")
    }
}

/// Waits until the pod runs.
async fn runs(client: &Client, name: &str, found: &mut Found) -> Result<bool, EngineError> {
    let end = Instant::now() + RUNS_WITHIN;
    loop {
        let there = pods(client).get_opt(name).await.map_err(|e| failed(format!("pod {name}"), e))?;
        let Some(there) = there else {
            found.fail("PodRunning", "PodGone", "somebody deleted the pod that verifies the node; run `kubebyon doctor` on it again");
            return Ok(false);
        };
        let status = there.status.unwrap_or_default();
        if status.phase.as_deref() == Some("Running") {
            found.well("PodRunning", "the pod runs");
            return Ok(true);
        }
        let waiting = status.container_statuses.iter().flatten().find_map(|c| c.state.as_ref()?.waiting.clone()).unwrap_or_default();
        let reason = waiting.reason.unwrap_or_default();
        // The image is not pulled: waiting does not bring it.
        let hopeless = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) || reason == "ErrImageNeverPull";
        if hopeless || Instant::now() >= end {
            let said = waiting.message.or(status.message).unwrap_or_default();
            let events = if reason == "ErrImageNeverPull" { String::new() } else { last_event(client, name).await };
            let reason = if reason.is_empty() { status.reason.unwrap_or_else(|| "NotRunning".to_owned()) } else { reason };
            found.fail("PodRunning", &reason, trouble(&reason, &[&said, &events]));
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What keeps a pod from running, with what to do.
fn trouble(reason: &str, said: &[&str]) -> String {
    let said = said.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join("; ");
    let remedy = if reason == "ErrImageNeverPull" {
        "the image for verifying is not on the node: run `kubebyon join` with its token again, which imports it"
    } else if said.contains("cni") || said.contains("network") {
        "the pod network does not work: look into /etc/cni/net.d and at the node's conditions"
    } else if said.contains("sandbox") {
        "the container runtime cannot make pods: see containerd's log in /var/log/kubebyon-node"
    } else if reason.starts_with("OutOf") {
        "the node has too little left for a pod"
    } else {
        "the pod does not run"
    };
    if said.is_empty() { format!("{remedy} ({reason})") } else { format!("{remedy} ({reason}): {said}") }
}

/// The last warning about a pod.
async fn last_event(client: &Client, pod: &str) -> String {
    let list = ListParams::default().fields(&format!("involvedObject.name={pod},type=Warning")).limit(50);
    let events = Api::<Event>::namespaced(client.clone(), NAMESPACE).list(&list).await;
    let last = events.ok().and_then(|events| events.items.into_iter().max_by_key(|e| e.last_timestamp.clone()));
    last.and_then(|event| event.message).unwrap_or_default().chars().take(400).collect()
}

/// Reads from the pod's log what it found.
async fn tells(client: &Client, node: &Node, name: &str, found: &mut Found) -> Result<bool, EngineError> {
    let params = LogParams { container: Some(pod::CONTAINER.to_owned()), limit_bytes: Some(MAX_LOG), ..LogParams::default() };
    let (begun, mut read, mut told) = (Instant::now(), false, 0);
    loop {
        match pods(client).logs(name, &params).await {
            Ok(log) => {
                if !read {
                    read = true;
                    found.well("Logs", "the pod's log is read through the API server");
                }
                let steps: Vec<Aspect> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(is_a_step).collect();
                for mut step in steps.into_iter().skip(told) {
                    told += 1;
                    if !step.status && step.kind == NAME_RESOLVED {
                        step.message = format!("{}{}", step.message, dns_here(client, node).await);
                    }
                    let (kind, status) = (step.kind.clone(), step.status);
                    found.add(step);
                    if !status || kind == NAME_RESOLVED {
                        return Ok(status);
                    }
                }
            }
            Err(error) if !read && begun.elapsed() >= LOGS_WITHIN => {
                let why = match error {
                    kube::Error::Api(status) => status.message.clone(),
                    other => other.to_string(),
                };
                found.fail("Logs", "LogsUnreachable", format!("the API server cannot read logs from the kubelet: {why}"));
                return Ok(false);
            }
            Err(_) => {}
        }
        if let Some(why) = ended(client, name).await? {
            found.fail("PodTold", "PodEnded", format!("the pod that verifies the node ended before it told what it found: {why}"));
            return Ok(false);
        }
        if begun.elapsed() >= TELLS_WITHIN {
            found.fail("PodTold", "PodSilent", "the pod did not tell what it found in time; is the machine overloaded?");
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Why a pod runs no longer; `None` while it does.
async fn ended(client: &Client, name: &str) -> Result<Option<String>, EngineError> {
    let Some(pod) = pods(client).get_opt(name).await.map_err(|e| failed(format!("pod {name}"), e))? else {
        return Ok(Some("somebody deleted it".to_owned()));
    };
    let status = pod.status.unwrap_or_default();
    if !matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        return Ok(None);
    }
    let exit = status.container_statuses.iter().flatten().find_map(|c| c.state.as_ref()?.terminated.clone());
    let code = exit.map(|e| format!("exit code {} ({})", e.exit_code, e.reason.unwrap_or_default()));
    Ok(Some(status.message.or(code).unwrap_or_else(|| "the kubelet does not say why".to_owned())))
}

fn is_a_step(aspect: &Aspect) -> bool {
    aspect.kind == API_SERVER_REACHED || aspect.kind == NAME_RESOLVED
}

/// What is known of the pod of CoreDNS on a node, where it does not answer.
async fn dns_here(client: &Client, node: &Node) -> String {
    let (key, value) = coredns::POD_LABEL;
    let list = ListParams::default().labels(&format!("{key}={value}")).fields(&format!("spec.nodeName={}", node.name)).limit(5);
    let Ok(found) = Api::<Pod>::namespaced(client.clone(), coredns::NAMESPACE).list(&list).await else { return String::new() };
    let Some(pod) = found.items.into_iter().next() else { return "; no pod of CoreDNS is on this node".to_owned() };
    let name = pod.name_any();
    let state = pod.status.and_then(|s| s.container_statuses).into_iter().flatten().next();
    let Some(state) = state.filter(|c| !c.ready) else { return String::new() };
    let waiting =
        state.state.and_then(|s| s.waiting).map(|w| format!("{}: {}", w.reason.unwrap_or_default(), w.message.unwrap_or_default()));
    format!(
        "; the pod of CoreDNS here, {}/{name}, is not ready ({})",
        coredns::NAMESPACE,
        waiting.unwrap_or_else(|| "it starts".to_owned())
    )
}

/// Runs a command in the pod.
async fn execs(scope: &Scope, name: &str, found: &mut Found) -> Result<(), EngineError> {
    let client = scope.control_plane.patient_client().await?;
    let attach = AttachParams { container: Some(pod::CONTAINER.to_owned()), ..AttachParams::default() };
    let run = async {
        let mut process = pods(&client).exec(name, [pod::PROGRAM, "version"], &attach).await.map_err(|e| match e {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })?;
        let status = process.take_status();
        let mut said = Vec::new();
        if let Some(output) = process.stdout() {
            output.take(4096).read_to_end(&mut said).await.map_err(|e| e.to_string())?;
        }
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        let succeeded = status.as_ref().is_some_and(|s| s.status.as_deref() == Some("Success"));
        let why = status.and_then(|s| s.message).unwrap_or_else(|| "the stream ended early".to_owned());
        if succeeded { Ok(String::from_utf8_lossy(&said).trim().to_owned()) } else { Err(why) }
    };
    match tokio::time::timeout(EXEC_WITHIN, run).await {
        Ok(Ok(said)) => found.well("Exec", format!("a command ran in the pod: {}", said.chars().take(80).collect::<String>())),
        Ok(Err(why)) => found.fail("Exec", "ExecFailed", format!("a command cannot be run in the pod: {why}")),
        Err(_) => found.fail("Exec", "ExecFailed", format!("a command in the pod did not end within {} s", EXEC_WITHIN.as_secs())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_the_tenants_is_named() {
        for (message, reason) in [
            ("pods \"verify-x\" is forbidden: violates PodSecurity \"restricted:latest\": x", "PodSecurity"),
            ("pods \"verify-x\" is forbidden: exceeded quota: compute, requested: pods=1", "ResourceQuota"),
            ("Internal error occurred: failed calling webhook \"a.b.c\": failed to call webhook: Post", "WebhookFailed"),
            ("admission webhook \"validate.kyverno.svc-fail\" denied the request: no", "AdmissionDenied"),
            ("pods \"verify-x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "AdmissionDenied"),
            ("something else", "PodRefused"),
        ] {
            assert_eq!(refusal(message).0, reason, "{message}");
        }
    }

    #[test]
    fn what_keeps_a_pod_from_running_comes_with_a_remedy() {
        assert!(trouble("ErrImageNeverPull", &["Container image \"x\" is not present", ""]).contains("kubebyon join"));
        let network = trouble("ContainerCreating", &["", "failed to setup network for sandbox: plugin type=\"bridge\" failed"]);
        assert!(network.starts_with("the pod network does not work") && network.contains("bridge"), "{network}");
        assert_eq!(trouble("NotRunning", &[""]), "the pod does not run (NotRunning)");
    }
}
