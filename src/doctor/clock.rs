//! Whether the clock can be believed: certificates of short life fail on machines whose clocks differ.

use super::{Context, Finding};
use crate::domain::Timestamp;

const CHECK: &str = "clock";

pub(super) fn check(context: &Context) -> Finding {
    judge(context.ambient.now(), context.built_at, synchronised())
}

/// Judges the present time; `synchronised` is `None` where the kernel does not tell.
fn judge(now: Timestamp, built_at: Timestamp, synchronised: Option<bool>) -> Finding {
    if now < built_at {
        return Finding::failed(
            CHECK,
            format!("The clock says {now}, which is before this program was built ({built_at}); certificates would be of no use."),
            "Set it and keep it set: `timedatectl set-ntp true`, or `chronyc makestep`.",
        );
    }
    match synchronised {
        Some(true) => Finding::ok(CHECK, format!("The clock says {now} and is kept by NTP.")),
        Some(false) => Finding::warning(
            CHECK,
            format!("The clock says {now}, and nothing keeps it: once it is off by minutes, credentials are refused."),
            "Have it kept: `timedatectl set-ntp true`, or install chrony (`apt-get install chrony`).",
        ),
        None => Finding::warning(
            CHECK,
            format!("The clock says {now}; whether something keeps it, the kernel does not tell."),
            "Look at `timedatectl status`.",
        ),
    }
}

/// Whether the kernel holds its clock for synchronised (adjtimex(2)).
fn synchronised() -> Option<bool> {
    // SAFETY: a timex of zeros is valid, and with `modes` 0 the call only fills it.
    let (state, status) = unsafe {
        let mut timex: nix::libc::timex = std::mem::zeroed();
        (nix::libc::adjtimex(&raw mut timex), timex.status)
    };
    if state < 0 { None } else { Some(state != nix::libc::TIME_ERROR && status & nix::libc::STA_UNSYNC == 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn a_clock_before_the_build_fails_whoever_keeps_it() {
        let (before, built, after) = (Timestamp::from_micros(1), Timestamp::from_micros(2), Timestamp::from_micros(3));
        for (now, synchronised, expected) in [
            (before, Some(true), Status::Failed),
            (built, Some(true), Status::Ok),
            (after, Some(true), Status::Ok),
            (after, Some(false), Status::Warning),
            (after, None, Status::Warning),
        ] {
            assert_eq!(judge(now, built, synchronised).status, expected, "{now} {synchronised:?}");
        }
    }
}
