//! The configuration as YAML, and the reference page. May import: nothing of ours.

use std::fmt::Write as _;

use super::section::Key;
use super::{Config, keys, unbuilt};

impl Config {
    /// The whole configuration as YAML that [`Config::load`] reads, passwords replaced by `***`.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).expect("a configuration is plain YAML")
    }
}

/// The reference page of all keys, as `docs/configuration.md` holds it: what this release does nothing with stands at the end.
pub fn reference() -> String {
    let defaults = serde_json::to_value(Config::default()).expect("a configuration is plain JSON");
    let (later, works): (Vec<_>, Vec<_>) =
        keys::ALL.iter().filter(|key| !key.is_section).partition(|key| unbuilt::remark(&key.path).is_some());
    let mut page = String::from(HEAD);
    write_keys(&mut page, &works, 2, &defaults);
    page.push_str(LATER);
    write_keys(&mut page, &later, 3, &defaults);
    page
}

/// The keys in the order of their declarations, under the headings of those sections that hold one of them.
fn write_keys(page: &mut String, chosen: &[&Key], top: usize, defaults: &serde_json::Value) {
    for key in keys::ALL.iter() {
        if key.is_section {
            let within = format!("{}.", key.path);
            if chosen.iter().any(|key| key.path.starts_with(&within)) {
                let depth = "#".repeat((top + key.path.matches('.').count()).min(6));
                let _ = write!(page, "\n{depth} `{}`\n\n{}\n", key.path, key.doc);
            }
        } else if chosen.contains(&key) {
            let default = key.path.split('.').try_fold(defaults, |node, name| node.get(name)).map(ToString::to_string).unwrap_or_default();
            let default = match default.trim_matches('"') {
                "null" => String::new(),
                "" => String::from(" Default: empty."),
                text => format!(" Default: `{}`.", text.replace('"', "").replace(',', ", ")),
            };
            let remark = unbuilt::remark(&key.path).map(|remark| format!(" **{remark}**")).unwrap_or_default();
            let _ = write!(page, "\n- **`{}`**: {}{default}{remark}\n", key.path, key.doc);
        }
    }
}

/// What the part with the keys of later releases begins with.
const LATER: &str = "
## Not in this release

These keys have their names already, and this release does nothing with what they ask for. Where it would have to do something, it refuses
the value, so that nobody relies on what is not there; `kubebyon config check` names each. Their defaults are always accepted.
";

const HEAD: &str = "# Configuration

<!-- Made from src/config by `cargo test --lib config::tests::the_reference_is_current`; with UPDATE_DOCS=1 the test writes it. -->

Keys of what comes with later releases stand at the end, under [Not in this release](#not-in-this-release): they are refused, or without
effect, as each says. All others work.

KubeBYON reads one YAML file (`/etc/kubebyon/kubebyon.yaml`, or the one that `--config` names), then variables of the environment that
begin with `KUBEBYON_`, then flags; what comes later wins. A variable's name is the key in capitals with `__` for each dot:
`KUBEBYON_LOG__LEVEL=debug` sets `log.level`. Lists are words between commas, or YAML. An empty variable counts as not set.
`KUBEBYON_SERVER`, `KUBEBYON_TOKEN` and `KUBEBYON_JOIN_TOKEN` belong to the client and set nothing here.

Everything is checked before a port opens. `kubebyon config check` does only that; `kubebyon config print` shows the outcome with passwords
hidden. A wrong configuration ends the process with exit code 64, and every mistake is named with its file, line and key.

A key given here beats the setting of the same name: `kubebyon settings set` then refuses and names the file.

Sizes are bytes or carry a unit (`512Mi`, `2Gi`); times look like `30s`, `8h`, `7d` or `1h30m`; a listener is `[::]:443`, `0.0.0.0:443`,
`:443` or `off`.

## At the top
";
