//! The keys that there are, and the one that somebody meant. May import: nothing of ours.

use std::sync::LazyLock;

use super::Config;
use super::section::{Key, Section};

/// Every key, in the order of the declarations, sections before what they hold.
pub static ALL: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let mut keys = Vec::new();
    Config::keys("", &mut keys);
    keys
});

/// The key at a path.
pub fn find(path: &str) -> Option<&'static Key> {
    ALL.iter().find(|key| key.path == path)
}

/// `syncIntervalSeconds` and `gatewayAPI` as they are written here.
fn snake_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 4);
    let mut previous = '_';
    for c in text.chars() {
        if c.is_ascii_uppercase() && (previous.is_ascii_lowercase() || previous.is_ascii_digit()) {
            out.push('_');
        }
        out.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
        previous = c;
    }
    out
}

/// The known key that is nearest to an unknown one, if any is near.
pub fn nearest(unknown: &str) -> Option<&'static str> {
    let wanted = snake_case(unknown);
    let last = |path: &str| path.rsplit('.').next().unwrap_or(path).to_owned();
    let score = |key: &Key| {
        let whole = strsim::normalized_damerau_levenshtein(&wanted, &key.path);
        // The right word in the wrong section (`dsn`, `loglevel`, `logging.level`) says more than the letters of the whole path.
        let same_word = if last(&wanted) == last(&key.path) { 0.7 + whole / 4.0 } else { 0.0 };
        let squeezed = |text: &str| text.replace(['.', '_'], "");
        let same_letters = if squeezed(&wanted) == squeezed(&key.path) { 0.95 } else { 0.0 };
        let begins_alike = if key.path.len() >= 3 && !wanted.contains('.') && wanted.starts_with(&key.path) { 0.5 } else { 0.0 };
        whole.max(same_word).max(same_letters).max(begins_alike)
    };
    let best = ALL.iter().map(|key| (score(key), key)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= 0.5).then_some(best.1.path.as_str())
}

/// The sentence for a key that there is not.
pub fn unknown_message(path: &str) -> String {
    match nearest(path) {
        Some(near) => format!("there is no such key; did you mean {near}?"),
        None => "there is no such key; `kubebyon config print` shows all that there are".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_has_its_full_path() {
        for (unknown, near) in [
            ("log.levle", Some("log.level")),
            ("loglevel", Some("log.level")),
            ("logging.level", Some("log.level")),
            ("logging", Some("log")),
            ("dsn", Some("database.dsn")),
            ("platfrom_host", Some("platform_host")),
            ("gatewayAPI.syncIntervalSeconds", Some("gateway_api.sync_interval_seconds")),
            ("gatewayAPI", Some("gateway_api")),
            ("nodeport-range", Some("nodeport_range")),
            ("tls.certificate", Some("tls.cert")),
            ("colour", None),
        ] {
            assert_eq!(nearest(unknown), near, "{unknown}");
        }
    }

    #[test]
    fn keys_are_listed_once_and_described() {
        let mut paths: Vec<_> = ALL.iter().map(|key| &key.path).collect();
        paths.sort();
        let count = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), count);
        assert!(ALL.iter().all(|key| key.doc.ends_with('.')), "each description is a sentence");
    }
}
