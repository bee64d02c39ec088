//! kube-scheduler: one replica.

use super::{Flags, Layout, Program, ports};
use crate::pki::cluster::files as pki;

/// Percentage of growth at which the scheduler's collector starts.
const GOGC: u32 = 30;

pub(super) fn program(layout: &Layout) -> Program {
    Flags::of("kube-scheduler", GOGC)
        .set("kubeconfig", layout.run("scheduler.kubeconfig"))
        .set("leader-elect", false)
        .serving(layout, ports::SCHEDULER, (pki::SCHEDULER_SERVING_CERT, pki::SCHEDULER_SERVING_KEY))
        // Without a kubeconfig for these, only /healthz, /readyz and /livez are served; all else is forbidden.
        .set("authentication-skip-lookup", true)
        .program()
}
