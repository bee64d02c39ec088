//! The configuration as YAML, and the reference page. May import: nothing of ours.

use std::fmt::Write as _;

use super::{Config, keys};

impl Config {
    /// The whole configuration as YAML that [`Config::load`] reads, passwords replaced by `***`.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).expect("a configuration is plain YAML")
    }
}

/// The reference page of all keys, as `docs/configuration.md` holds it.
pub fn reference() -> String {
    let defaults = serde_json::to_value(Config::default()).expect("a configuration is plain JSON");
    let mut page = String::from(HEAD);
    for key in keys::ALL.iter() {
        if key.is_section {
            let depth = "#".repeat(2 + key.path.matches('.').count());
            let _ = write!(page, "\n{depth} `{}`\n\n{}\n", key.path, key.doc);
            continue;
        }
        let default = key.path.split('.').try_fold(&defaults, |node, name| node.get(name)).map(ToString::to_string).unwrap_or_default();
        let default = match default.trim_matches('"') {
            "null" => String::new(),
            "" => String::from(" Default: empty."),
            text => format!(" Default: `{}`.", text.replace('"', "").replace(',', ", ")),
        };
        let _ = write!(page, "\n- **`{}`**: {}{default}\n", key.path, key.doc);
    }
    page
}

const HEAD: &str = "# Configuration

<!-- Made from src/config by `cargo test --lib config::tests::the_reference_is_current`; with UPDATE_DOCS=1 the test writes it. -->

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
