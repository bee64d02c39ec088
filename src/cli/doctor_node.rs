//! `kubebyon doctor` on a node: is the machine still fit, is the node role well, do pods work here.

use crate::doctor::{Finding, Status};
use crate::domain::Ambient;
use crate::node::control::{self, Reply, Request};
use crate::node::join::{self, End};
use crate::node::layout::Layout;
use crate::node::membership::Membership;
use crate::node::preflight::{self, Severity, Wanted};

/// Where the node's own programs tell what they do.
const LOGS: &str = "See its log in /var/log/kubebyon-node, and `journalctl -u kubebyon-node -e`.";

/// Runs every check of a node.
pub async fn run(layout: &Layout, membership: &Membership, ambient: &Ambient) -> Vec<Finding> {
    let mut findings = machine(layout, membership, ambient).await;
    findings.extend(role(layout, membership).await);
    findings
}

fn failed(check: &'static str, message: impl AsRef<str>, remedy: impl Into<String>) -> Finding {
    // Sentences of others end now with a full stop, now without.
    let message = format!("{}.", message.as_ref().trim_end_matches('.'));
    Finding { check, status: Status::Failed, message, remedy: Some(remedy.into()) }
}

fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { check, status: Status::Ok, message: message.into(), remedy: None }
}

/// The machine, as preflight judges it; and whether the platform is reached from here.
async fn machine(layout: &Layout, membership: &Membership, ambient: &Ambient) -> Vec<Finding> {
    let wanted = Wanted {
        name: membership.name.clone(),
        service: membership.options.service,
        node_ip: membership.options.node_ip,
        containerd_socket: membership.options.containerd_socket.clone(),
        ..Wanted::default()
    };
    let platform = (&membership.server[..], &membership.trust);
    let mut findings = Vec::new();
    let looked = match join::preview(Some(platform), wanted.clone(), layout, ambient).await {
        Ok(looked) => {
            findings.push(ok("platform", format!("{} is reached.", membership.server)));
            Ok(looked)
        }
        Err(error) => {
            let remedy = format!("Look at the network and at the proxy settings in {}.", layout.node_yaml().display());
            findings.push(failed("platform", format!("{error:#}."), remedy));
            join::preview(None, wanted, layout, ambient).await
        }
    };
    match looked {
        Ok(looked) if looked.findings.is_empty() => findings.push(ok("machine", "The machine is fit to be a node.")),
        Ok(looked) => findings.extend(looked.findings.into_iter().map(of_preflight)),
        Err(error) => findings.push(failed("machine", format!("{error:#}."), "Run `kubebyon leave`, then join again.")),
    }
    findings
}

fn of_preflight(finding: preflight::Finding) -> Finding {
    let status = match finding.severity {
        Severity::Warning => Status::Warning,
        Severity::Error => Status::Failed,
    };
    Finding { check: finding.check, status, message: finding.message, remedy: Some(finding.remedy) }
}

/// The node role, its programs, its tunnel, and what the platform finds of pods here.
async fn role(layout: &Layout, membership: &Membership) -> Vec<Finding> {
    let answer = control::ask(&layout.control_socket(), &Request::Status, join::STATUS_WITHIN, async |_: &str, _: &str| {}).await;
    let status = match answer {
        Ok(Reply::Status(status)) => *status,
        Ok(_) => {
            return vec![failed("role", "The node role answers what was not asked.", "Restart it: `systemctl restart kubebyon-node`.")];
        }
        Err(error) => return vec![failed("role", format!("{error:#}."), "Start it: `systemctl restart kubebyon-node`.")],
    };
    let mut findings = Vec::new();
    for program in &status.programs {
        let trouble = program.trouble.clone().or_else(|| program.pid.is_none().then(|| "it does not run".to_owned()));
        match trouble {
            Some(trouble) => findings.push(failed("programs", format!("{}: {trouble}.", program.name), LOGS)),
            None => findings.push(ok("programs", format!("{} runs.", program.name))),
        }
    }
    findings.extend(status.aspects.iter().filter(|aspect| !aspect.status).map(|aspect| {
        let message = format!("{} ({}): {}.", aspect.kind, aspect.reason, aspect.message);
        Finding { check: "state", status: Status::Warning, message, remedy: Some(LOGS.to_owned()) }
    }));
    if let Some(ended) = &status.ended {
        findings.push(failed("tunnel", format!("{}.", ended.message), "Run `kubebyon leave`; a new token joins the machine again."));
        return findings;
    }
    if !status.connected {
        let why = status.trouble.unwrap_or_else(|| "it is being made".to_owned());
        findings.push(failed(
            "tunnel",
            format!("The tunnel is down: {why}."),
            "Look at the network between this machine and the platform's 443.",
        ));
        return findings;
    }
    findings.push(ok("tunnel", "The tunnel stands."));
    findings.push(pods(layout, membership).await);
    findings
}

/// Whether pods work here, as the platform finds.
async fn pods(layout: &Layout, membership: &Membership) -> Finding {
    match join::verify(layout, membership, async |_: &str, _: &str| {}).await {
        Ok(End::WaitingForNetwork { .. }) => Finding {
            check: "pods",
            status: Status::Warning,
            message: "The node waits for your own CNI.".to_owned(),
            remedy: Some("Install it, for example Cilium with `k8sServiceHost` as `kubebyon cluster get` shows it.".to_owned()),
        },
        Ok(_) => ok("pods", "A pod runs here, resolves a name and reaches the API server; exec and logs answer."),
        Err(error) => failed("pods", format!("{error:#}."), "Mend what the step names, then run `kubebyon doctor` again."),
    }
}
