//! How many clusters the memory holds.

use super::{Context, Finding, readable};

const CHECK: &str = "memory";

pub(super) fn check(context: &Context) -> Finding {
    match std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(parse) {
        Some(memory) => judge(memory, context.cluster_memory),
        None => Finding::warning(CHECK, "The memory cannot be read from /proc/meminfo.", "Look at it by hand: `free -h`."),
    }
}

/// What the machine has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

fn judge(memory: Memory, cluster: u64) -> Finding {
    let fit = memory.available / cluster.max(1);
    let state = format!("{} of {} of memory are available", readable(memory.available), readable(memory.total));
    let each = readable(cluster);
    let remedy = "Free memory (`ps -eo rss,comm --sort=-rss | head` shows who has it), or give the machine more.";
    match fit {
        0 => Finding::failed(CHECK, format!("{state}: not enough for one cluster, which takes about {each}."), remedy),
        1 => Finding::warning(CHECK, format!("{state}: enough for one more cluster, which takes about {each}."), remedy),
        _ => Finding::ok(CHECK, format!("{state}: enough for {fit} more clusters of about {each} each.")),
    }
}

fn parse(meminfo: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    Some(Memory { total: field("MemTotal:")?, available: field("MemAvailable:")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{CLUSTER_MEMORY, Status};

    #[test]
    fn the_clusters_that_fit_are_counted() {
        let memory = parse("MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   2048000 kB\n").unwrap();
        assert_eq!(memory, Memory { total: 25_165_824_000, available: 2_097_152_000 });
        assert!(judge(memory, CLUSTER_MEMORY).message.contains("6 more clusters"));
        for (available, expected) in
            [(2 * CLUSTER_MEMORY - 1, Status::Warning), (2 * CLUSTER_MEMORY, Status::Ok), (CLUSTER_MEMORY - 1, Status::Failed)]
        {
            assert_eq!(judge(Memory { available, ..memory }, CLUSTER_MEMORY).status, expected, "{available}");
        }
        assert_eq!(parse("MemTotal: 5 kB\n"), None);
    }
}
