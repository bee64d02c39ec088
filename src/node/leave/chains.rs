//! Chains of iptables that the kubelet and kube-proxy made: each is known by its name, `KUBE-…`.

use std::path::Path;

use crate::node::join::service::run;

const TABLES: [&str; 3] = ["filter", "nat", "mangle"];
const PREFIX: &str = "KUBE-";

/// The commands that remove the chains of one table, out of its listing (`iptables -S`): rules that lead into them, then what is in
/// them, then they themselves.
fn commands(listing: &str, table: &str) -> Vec<Vec<String>> {
    let command = |words: &[&str]| ["-w", "5", "-t", table].iter().chain(words).map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let chains: Vec<&str> = listing.lines().filter_map(|line| line.strip_prefix("-N ")).filter(|chain| chain.starts_with(PREFIX)).collect();
    let mut commands = Vec::new();
    for line in listing.lines() {
        let words = words(line);
        let [verb, chain, rest @ ..] = &words[..] else { continue };
        let leads = rest.windows(2).any(|pair| matches!(pair[0].as_str(), "-j" | "-g") && chains.contains(&pair[1].as_str()));
        if verb == "-A" && leads && !chain.starts_with(PREFIX) {
            let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
            commands.push(command(&[&["-D", chain], &rest[..]].concat()));
        }
    }
    commands.extend(chains.iter().map(|chain| command(&["-F", chain])));
    commands.extend(chains.iter().map(|chain| command(&["-X", chain])));
    commands
}

/// Splits a line as a shell would, as far as `iptables -S` quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quoted => word.extend(characters.next()),
            '"' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            other => word.push(other),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Removes them, of IPv4 and IPv6. A machine without iptables has none.
pub async fn remove() -> Vec<anyhow::Error> {
    let mut failures = Vec::new();
    for program in ["iptables", "ip6tables"] {
        for table in TABLES {
            let Ok(listing) = run(Path::new(program), &["-w", "5", "-t", table, "-S"]).await else { continue };
            for command in commands(&listing, table) {
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                failures.extend(run(Path::new(program), &command).await.err());
            }
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_kubernetes_go_with_the_rules_that_lead_into_them() {
        let listing = "\
-P INPUT ACCEPT
-N DOCKER
-N KUBE-FIREWALL
-N KUBE-SERVICES
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m comment --comment \"-j KUBE-SERVICES\" -j DOCKER
-A KUBE-SERVICES -j KUBE-FIREWALL
";
        let found: Vec<_> = commands(listing, "filter").iter().map(|words| words[4..].join("|")).collect();
        assert_eq!(
            found,
            [
                "-D|INPUT|-j|KUBE-FIREWALL",
                "-D|OUTPUT|-m|conntrack|--ctstate|NEW|-m|comment|--comment|kubernetes service portals|-j|KUBE-SERVICES",
                "-F|KUBE-FIREWALL",
                "-F|KUBE-SERVICES",
                "-X|KUBE-FIREWALL",
                "-X|KUBE-SERVICES",
            ]
        );
        assert!(commands("", "nat").is_empty());
    }
}
