//! Networks for tests: a bridge with the platform on it, of which machines reach one port alone, and routers that hide machines behind one
//! address. Everything that the platform opens towards machines is counted.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::sweep;
use crate::harness::run;

/// The platform's bridge, in this machine's own network.
pub struct Network {
    id: String,
    /// The platform's address.
    pub address: String,
    subnet: String,
}

/// Where a machine can be plugged in.
#[derive(Debug, Clone)]
pub struct Lan {
    /// The process whose network the bridge is in; absent: this machine's own.
    router: Option<i32>,
    bridge: String,
    /// The address of the way out.
    pub gateway: String,
}

/// A router that gives all machines behind it one address (masquerading), as at home.
pub struct Router {
    /// Its address before the platform.
    pub address: String,
    /// Where machines are plugged in behind it.
    pub lan: Lan,
    shell: Child,
    _held: Option<ChildStdin>,
}

/// The nft table of a network.
pub fn table(bridge: &str) -> String {
    format!("kubebyon_test_{bridge}")
}

/// Loads nft commands; they are right or the test is wrong.
fn nft(text: &str) {
    let output = Command::new("nft").arg(text).output().unwrap();
    assert!(output.status.success(), "nft {text}: {}", String::from_utf8_lossy(&output.stderr));
}

fn must(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Network {
    /// Makes one. Nothing is let through before [`Network::open`].
    pub fn new() -> Self {
        sweep::sweep();
        let number = (0..60)
            .find(|number| run("ip", &["link", "add", &format!("kbt{number}"), "type", "bridge"]).status.success())
            .expect("a bridge can be made: as root, and with less than 60 of them");
        let id = format!("kbt{number}");
        must("ip", &["link", "set", "dev", &id, "alias", &format!("kubebyon-test {}", sweep::mark())]);
        let subnet = format!("10.213.{number}");
        let address = format!("{subnet}.1");
        must("ip", &["addr", "add", &format!("{address}/24"), "dev", &id]);
        must("ip", &["link", "set", &id, "up"]);
        let network = Self { id, address, subnet };
        let (table, id) = (table(&network.id), &network.id);
        nft(&format!("add table inet {table}; delete table inet {table}"));
        nft(&format!(
            "table inet {table} {{
                counter opened {{}}
                set cut {{ type ipv4_addr; }}
                set ports {{ type inet_service; }}
                chain in {{
                    type filter hook input priority filter - 5; policy accept;
                    iifname != {id} accept
                    ip saddr @cut drop
                    ct state established,related accept
                    tcp dport @ports accept
                    reject
                }}
                chain out {{
                    type filter hook output priority filter - 5; policy accept;
                    oifname != {id} accept
                    ip daddr @cut drop
                    meta l4proto {{ tcp, udp, icmp }} ct state new counter name opened
                }}
                chain through {{
                    type filter hook forward priority filter - 5; policy accept;
                    iifname {id} oifname {id} accept
                    iifname {id} drop
                    oifname {id} drop
                }}
            }}"
        ));
        network
    }

    /// Its name: that of its bridge.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Lets machines reach a port of the platform.
    pub fn open(&self, port: u16) {
        nft(&format!("add element inet {} ports {{ {port} }}", table(&self.id)));
    }

    /// How often the platform opened something towards machines.
    pub fn opened(&self) -> u64 {
        self.counted("opened")
    }

    /// Counts packets that leave the platform's host and fit (nft's words, such as `ip daddr 169.254.169.254`); gives the counter's name.
    pub fn count(&self, fitting: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (table, name) = (table(&self.id), format!("seen{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        nft(&format!("add counter inet {table} {name}"));
        nft(&format!("insert rule inet {table} out {fitting} counter name {name}"));
        name
    }

    /// What a counter has, in packets.
    pub fn counted(&self, counter: &str) -> u64 {
        let text = must("nft", &["-j", "list", "counter", "inet", &table(&self.id), counter]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let found = value["nftables"].as_array().unwrap().iter().find_map(|one| one["counter"]["packets"].as_u64());
        found.expect("the counter is there")
    }

    /// Drops everything from and to an address, as a cut line does.
    pub fn cut(&self, address: &str) {
        nft(&format!("add element inet {} cut {{ {address} }}", table(&self.id)));
    }

    /// Mends what was cut.
    pub fn mend(&self, address: &str) {
        nft(&format!("delete element inet {} cut {{ {address} }}", table(&self.id)));
    }

    /// The platform's own bridge, for machines beside it.
    pub fn lan(&self) -> Lan {
        Lan { router: None, bridge: self.id.clone(), gateway: self.address.clone() }
    }

    /// An address of the platform's bridge, with its prefix.
    pub fn at(&self, last: u8) -> String {
        format!("{}.{last}", self.subnet)
    }

    /// A router with the address ending in `last`, with a LAN behind it such as `192.168.1`.
    pub fn router(&self, last: u8, lan: &str) -> Router {
        let address = self.at(last);
        let script = format!(
            "set -e; ip link set lo up; sysctl -qw net.ipv4.ip_forward=1; ip link add lan type bridge; ip addr add {lan}.1/24 dev lan; \
             ip link set lan up; echo ready; exec sleep infinity"
        );
        // As with machines: it ends when standard input does.
        let keep = "unshare --net --pid --fork --kill-child bash -c \"$1\" </dev/null & router=$!; \
                    { cat >/dev/null || true; kill -KILL $router; } <&0 & wait $router || true";
        let mut shell = Command::new("bash")
            .args(["-c", keep, "router", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let held = shell.stdin.take();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready", "the router did not start");
        let pid = super::host::init_of(i32::try_from(shell.id()).unwrap());
        let inside = pid.to_string();
        self.lan().plug_as(&format!("{}-r{last}", self.id), &inside, "wan", &address);
        let rules = format!(
            "table ip nat {{
                chain post {{
                    type nat hook postrouting priority srcnat
                    oifname wan ip saddr {lan}.0/24 masquerade
                }}
            }}
            table ip filter {{
                chain through {{
                    type filter hook forward priority filter
                    iifname wan ct state new drop
                }}
            }}"
        );
        must("nsenter", &["--net", "-t", &inside, "nft", &rules]);
        Router { address, lan: Lan { router: Some(pid), bridge: "lan".into(), gateway: format!("{lan}.1") }, shell, _held: held }
    }
}

impl Lan {
    /// Connects the network of a process with this one: it has a link `eth0` with that address.
    pub fn plug(&self, name: &str, init: &str, address: &str) {
        self.plug_as(name, init, "eth0", address);
    }

    fn plug_as(&self, name: &str, init: &str, link: &str, address: &str) {
        let end = shortened(name);
        let router = self.router.map(|pid| pid.to_string());
        let here: Vec<&str> = router.as_ref().map_or_else(Vec::new, |pid| vec!["--net", "-t", pid]);
        let here = |args: &[&str]| must("nsenter", &[&here[..], args].concat());
        let there = |args: &[&str]| must("nsenter", &[&["--net", "-t", init], args].concat());
        here(&["ip", "link", "add", &end, "type", "veth", "peer", "name", link, "netns", init]);
        here(&["ip", "link", "set", &end, "master", &self.bridge, "up"]);
        there(&["ip", "addr", "add", &format!("{address}/24"), "dev", link]);
        there(&["ip", "link", "set", link, "up"]);
        there(&["ip", "route", "add", "default", "via", &self.gateway]);
    }
}

/// A link's name has 15 characters at most.
fn shortened(name: &str) -> String {
    name.chars().filter(|c| *c != '-').collect::<String>().chars().rev().take(15).collect::<Vec<_>>().into_iter().rev().collect()
}

impl Drop for Router {
    fn drop(&mut self) {
        drop(self._held.take());
        let _ = self.shell.wait();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = run("ip", &["link", "del", &self.id]);
        let _ = run("nft", &["delete", "table", "inet", &table(&self.id)]);
    }
}
