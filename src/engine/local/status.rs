//! From what is observed of a control plane to its status: components, conditions, and the phase between ready and degraded.
//!
//! Pure. May import: `domain`.

use super::supervise::Observed;
use crate::domain::Timestamp;
use crate::domain::cluster::{ClusterStatus, ComponentStatus, Phase};

/// The condition `EtcdSpace` as etcd's upkeep last found it.
pub type Space = Option<(bool, &'static str, String)>;

/// The condition of each component.
const CONDITIONS: [(&str, &str); 4] = [
    ("etcd", "EtcdHealthy"),
    ("kube-apiserver", "ApiServerHealthy"),
    ("kube-controller-manager", "ControllerManagerHealthy"),
    ("kube-scheduler", "SchedulerHealthy"),
];

/// Sets components and conditions.
pub fn observe(status: &mut ClusterStatus, now: Timestamp, observed: &Observed, space: &Space, unconfined: &[String]) {
    status.components.clone_from(&observed.components);
    for (name, condition) in CONDITIONS {
        let Some(component) = observed.component(name) else { continue };
        let reason = match (component.healthy, component.pid) {
            (true, _) => "Healthy",
            (false, Some(_)) => "Unhealthy",
            (false, None) => "NotRunning",
        };
        status.set_condition(now, condition, component.healthy, reason, component.message.clone());
    }
    if let Some((holds, reason, message)) = space {
        status.set_condition(now, "EtcdSpace", *holds, reason, message.clone());
    }
    if unconfined.is_empty() {
        status.set_condition(
            now,
            "Confined",
            true,
            "Confined",
            "its programs reach their own endpoints, files and share of the host alone",
        );
    } else {
        status.set_condition(now, "Confined", false, "PartlyConfined", unconfined.join("; "));
    }
}

/// Moves a cluster that was ready between ready and degraded; other phases are the reconcile's. Gives what to tell where the phase moved:
/// whether it is well, and why not.
pub fn judge(status: &mut ClusterStatus, now: Timestamp, observed: &Observed) -> Option<(bool, String)> {
    let why = complaint(&observed.components);
    match (status.phase, observed.ready()) {
        (Phase::Ready, false) => {
            status.phase = Phase::Degraded;
            status.set_condition(now, "Ready", false, "ComponentDown", why.clone());
            Some((false, why))
        }
        (Phase::Degraded, false) => {
            status.set_condition(now, "Ready", false, "ComponentDown", why);
            None
        }
        (Phase::Degraded, true) => {
            status.phase = Phase::Ready;
            let message = "the API server answers and all parts are well";
            status.set_condition(now, "Ready", true, "Ready", message);
            Some((true, message.to_owned()))
        }
        _ => None,
    }
}

/// Which components are down, and why.
pub fn complaint(components: &[ComponentStatus]) -> String {
    let down = components.iter().filter(|c| !c.healthy).map(|c| format!("{}: {}", c.name, c.message));
    down.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(healthy: bool) -> Observed {
        let component = |name: &str, healthy| ComponentStatus {
            name: name.into(),
            healthy,
            pid: healthy.then_some(7),
            restarts: 0,
            message: if healthy { String::new() } else { "it ended with exit status 1".into() },
        };
        let components = CONDITIONS.map(|(name, _)| component(name, healthy || name != "etcd")).into();
        Observed { applied: 1, components, as_planned: healthy }
    }

    #[test]
    fn the_part_that_is_down_is_named() {
        let mut status = ClusterStatus { phase: Phase::Ready, ..Default::default() };
        let space = Some((true, "Enough", "little is used".into()));
        observe(&mut status, Timestamp::from_micros(1), &observed(false), &space, &["no nftables".into()]);
        assert_eq!(status.condition("EtcdHealthy").unwrap().reason, "NotRunning");
        assert!(status.condition("SchedulerHealthy").unwrap().status && status.condition("EtcdSpace").unwrap().status);
        assert_eq!(status.condition("Confined").unwrap().message, "no nftables");
        let (well, why) = judge(&mut status, Timestamp::from_micros(1), &observed(false)).unwrap();
        assert!(!well);
        assert_eq!((why.as_str(), status.phase), ("etcd: it ended with exit status 1", Phase::Degraded));
        assert_eq!(judge(&mut status, Timestamp::from_micros(2), &observed(false)), None);
        assert!(judge(&mut status, Timestamp::from_micros(3), &observed(true)).unwrap().0);
        assert_eq!((status.phase, status.condition("Ready").unwrap().status), (Phase::Ready, true));
    }

    #[test]
    fn phases_of_a_reconcile_are_left_alone() {
        for phase in [Phase::Pending, Phase::Provisioning, Phase::Updating, Phase::Failed, Phase::Deleting] {
            let mut status = ClusterStatus { phase, ..Default::default() };
            assert_eq!(judge(&mut status, Timestamp::from_micros(1), &observed(false)), None);
            assert_eq!(status.phase, phase);
        }
    }
}
