//! Rules of `iptables`, each known by its comment: forwarding for pods where Docker, ufw or the owner drop by default, and masquerading on
//! kernels without nf_tables.
//!
//! A machine without `iptables` has none of those either. Rules of others are read and never changed.

use super::program::run;

/// The comment that says whose a rule is.
const COMMENT: &str = "kubebyon";

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    table: &'static str,
    chain: &'static str,
    /// As `iptables -S` prints it behind the chain's name.
    spec: String,
}

impl Rule {
    /// A rule that jumps to a target; `matches` as `iptables -S` prints them.
    pub(super) fn new(table: &'static str, chain: &'static str, matches: &str, target: &str) -> Self {
        Self { table, chain, spec: format!("{matches} -m comment --comment {COMMENT} -j {target}") }
    }
}

/// Whether a chain lets through only what a rule names: by its policy, or by a rule for everything that drops or rejects.
fn drops_by_default(listing: &str, chain: &str) -> bool {
    listing.lines().any(|line| {
        line == format!("-P {chain} DROP")
            || line
                .strip_prefix(&format!("-A {chain} -j "))
                .is_some_and(|target| target == "DROP" || target == "REJECT" || target.starts_with("REJECT "))
    })
}

/// What a listing has of ours: each as `iptables -S` prints it behind the chain's name.
fn ours<'a>(listing: &'a str, chain: &str) -> Vec<&'a str> {
    let prefix = format!("-A {chain} ");
    let marks = [format!("--comment {COMMENT} "), format!("--comment \"{COMMENT}\" ")];
    listing
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .filter(|spec| marks.iter().any(|mark| spec.contains(mark.as_str())))
        .collect()
}

/// The commands that bring one chain's listing to the wanted rules, ours alone; what is new goes first.
fn commands(listing: &str, table: &str, chain: &str, wanted: &[&Rule]) -> Vec<Vec<String>> {
    let present = ours(listing, chain);
    let command = |verb: &str, spec: &str| {
        let spec = spec.replace(&format!("\"{COMMENT}\""), COMMENT);
        ["-w", "5", "-t", table, verb, chain].into_iter().chain(spec.split_whitespace()).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut commands = Vec::new();
    for rule in wanted.iter().rev().filter(|rule| !present.contains(&rule.spec.as_str())) {
        commands.push(command("-I", &rule.spec));
    }
    for (at, spec) in present.iter().enumerate() {
        if present[..at].contains(spec) || !wanted.iter().any(|rule| rule.spec == *spec) {
            commands.push(command("-D", spec));
        }
    }
    commands
}

/// The chains that rules of ours may be in.
const CHAINS: [(&str, &str); 3] = [("filter", "FORWARD"), ("filter", "INPUT"), ("nat", "POSTROUTING")];

/// Brings our rules to what is wanted. Those of `FORWARD` and `INPUT` are wanted only where that chain drops by default.
///
/// # Errors
/// `iptables` fails; that there is none is well, unless rules are wanted whatever the chain says.
pub(super) async fn apply(wanted: &[Rule]) -> anyhow::Result<()> {
    for (table, chain) in CHAINS {
        let here: Vec<_> = wanted.iter().filter(|rule| (rule.table, rule.chain) == (table, chain)).collect();
        // Listing a table of iptables makes it, so `nat` is looked at only when something is or was wanted there.
        if table == "nat" && here.is_empty() && !has_nat_table().await {
            continue;
        }
        let Some(listing) = run("iptables", &["-w", "5", "-t", table, "-S", chain], "").await? else {
            if here.iter().any(|rule| rule.table == "nat") {
                anyhow::bail!("this machine has neither nft nor iptables: install the package nftables");
            }
            return Ok(());
        };
        let here = if table == "nat" || drops_by_default(&listing, chain) { here } else { Vec::new() };
        for command in commands(&listing, table, chain, &here) {
            run("iptables", &command.iter().map(String::as_str).collect::<Vec<_>>(), "").await?;
        }
    }
    Ok(())
}

/// Whether anything has put rules into the table `nat`, by either kind of iptables.
async fn has_nat_table() -> bool {
    // `/proc/net` is that of the process's first thread, whatever namespace this one is in.
    let legacy = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    let nft = run("nft", &["list", "tables", "ip"], "").await.ok().flatten().unwrap_or_default();
    legacy.lines().any(|line| line == "nat") || nft.lines().any(|line| line == "table ip nat")
}

/// Removes all rules of ours.
pub(super) async fn remove() -> anyhow::Result<()> {
    apply(&[]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKER: &str = "\
-P FORWARD DROP
-A FORWARD -s 10.9.0.0/16 -m comment --comment kubebyon -j ACCEPT
-A FORWARD -d 10.244.0.0/16 -m comment --comment \"kubebyon\" -j ACCEPT
-A FORWARD -s 10.244.0.0/16 -m comment --comment kubebyon -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -m comment --comment \"kubebyon of somebody\" -j DOCKER
";

    fn rule(matches: &str) -> Rule {
        Rule::new("filter", "FORWARD", matches, "ACCEPT")
    }

    #[test]
    fn adds_what_is_missing_and_removes_what_is_not_wanted_of_ours_alone() {
        let wanted = [rule("-s 10.244.0.0/16"), rule("-d 10.245.0.0/16")];
        let found = commands(DOCKER, "filter", "FORWARD", &wanted.iter().collect::<Vec<_>>());
        let found: Vec<_> = found.iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            found,
            [
                "-w 5 -t filter -I FORWARD -d 10.245.0.0/16 -m comment --comment kubebyon -j ACCEPT",
                "-w 5 -t filter -D FORWARD -s 10.9.0.0/16 -m comment --comment kubebyon -j ACCEPT",
                "-w 5 -t filter -D FORWARD -d 10.244.0.0/16 -m comment --comment kubebyon -j ACCEPT",
            ]
        );
    }

    #[test]
    fn the_program_takes_the_rules_and_gives_them_back_as_they_were_given() {
        let namespace = crate::routes::namespace::Namespace::new();
        namespace.block_on(|| async {
            let dropped = run("iptables", &["-w", "5", "-P", "FORWARD", "DROP"], "").await.unwrap();
            dropped.expect("iptables is here: scripts/prerequisites.sh tests installs it");
            let listing = |table| async move { run("iptables", &["-t", table, "-S"], "").await.unwrap().unwrap() };
            for foreign in [&["-A", "FORWARD", "-j", "LOG"][..], &["-t", "nat", "-A", "POSTROUTING", "-s", "10.9.0.0/16", "-j", "ACCEPT"]] {
                run("iptables", foreign, "").await.unwrap();
            }
            let before = (listing("filter").await, listing("nat").await);
            let wanted = [
                rule("-s 10.244.0.0/16"),
                Rule::new("filter", "INPUT", "-s 10.244.1.0/24 -d 198.51.100.1/32 -p tcp -m tcp --dport 6443", "ACCEPT"),
                Rule::new("nat", "POSTROUTING", "-s 10.244.1.0/24 ! -d 10.244.0.0/16", "MASQUERADE"),
                Rule::new("nat", "POSTROUTING", "! -s 10.244.0.0/16 -o kubebyon-vx", "MASQUERADE"),
            ];
            apply(&wanted).await.unwrap();
            let filter = listing("filter").await;
            assert!(filter.contains("-A FORWARD -s 10.244.0.0/16 -m comment --comment kubebyon -j ACCEPT\n-A FORWARD -j LOG"), "{filter}");
            assert!(!filter.contains("6443"), "INPUT accepts by default: {filter}");
            run("iptables", &["-P", "INPUT", "DROP"], "").await.unwrap();
            apply(&wanted).await.unwrap();
            let full = (listing("filter").await, listing("nat").await);
            assert!(full.0.contains("--dport 6443") && full.1.matches("kubebyon-vx").count() == 1, "{full:?}");
            apply(&wanted).await.unwrap();
            assert_eq!((listing("filter").await, listing("nat").await), full, "applied again, nothing changes");
            run("iptables", &["-P", "INPUT", "ACCEPT"], "").await.unwrap();
            remove().await.unwrap();
            assert_eq!((listing("filter").await, listing("nat").await), before);
        });
    }

    #[test]
    fn knows_a_chain_that_drops_by_default() {
        assert!(drops_by_default(DOCKER, "FORWARD"));
        assert!(drops_by_default("-P FORWARD ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n", "FORWARD"));
        assert!(!drops_by_default("-P FORWARD ACCEPT\n-A FORWARD -s 10.0.0.1/32 -j DROP\n", "FORWARD"));
        assert!(!drops_by_default("-P FORWARD ACCEPT\n-A FORWARD -j REJECTED\n", "FORWARD"));
    }
}
