//! Labels and selectors, in Kubernetes' own form.

use std::collections::BTreeMap;

use super::Invalid;

/// The most labels that a cluster may carry.
pub const MAX_LABELS: usize = 64;

/// Checks one label: `[prefix/]name`, name and value of at most 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit.
pub fn validate(key: &str, value: &str) -> Result<(), Invalid> {
    let part = |text: &str| {
        let bytes = text.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= 63
            && bytes[0].is_ascii_alphanumeric()
            && bytes[bytes.len() - 1].is_ascii_alphanumeric()
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let (prefix, name) = key.split_once('/').map_or((None, key), |(p, n)| (Some(p), n));
    let prefix_is_domain = |p: &str| {
        p.len() <= 253 && p.split('.').all(|l| part(l) && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'))
    };
    if !part(name) || prefix.is_some_and(|p| !prefix_is_domain(p)) {
        return Err(Invalid::new("labels", format!("{key:?} is no label key; it looks like team or example.com/team")));
    }
    if !value.is_empty() && !part(value) {
        return Err(Invalid::new("labels", format!("{value:?} is no label value: at most 63 letters, digits, '-', '_' and '.'")));
    }
    Ok(())
}

/// Checks a whole set of labels.
pub fn validate_all(labels: &BTreeMap<String, String>) -> Result<(), Invalid> {
    if labels.len() > MAX_LABELS {
        return Err(Invalid::new("labels", format!("{} labels are too many; at most {MAX_LABELS} are allowed", labels.len())));
    }
    labels.iter().try_for_each(|(key, value)| validate(key, value))
}

/// One requirement of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Equals(String, String),
    Differs(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// A selector such as `team=web,tier!=old,env in (a,b),critical,!legacy`; all requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels are selected. As in Kubernetes, `!=` and `notin` hold where the key is absent.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Equals(k, v) => labels.get(k) == Some(v),
            Requirement::Differs(k, v) => labels.get(k) != Some(v),
            Requirement::In(k, vs) => labels.get(k).is_some_and(|v| vs.contains(v)),
            Requirement::NotIn(k, vs) => labels.get(k).is_none_or(|v| !vs.contains(v)),
            Requirement::Exists(k) => labels.contains_key(k),
            Requirement::Absent(k) => !labels.contains_key(k),
        })
    }
}

impl std::str::FromStr for Selector {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        split_outside_parentheses(text)
            .into_iter()
            .map(str::trim)
            .filter(|p| !p.is_empty())
            .map(requirement)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn requirement(text: &str) -> Result<Requirement, Invalid> {
    let refuse = || {
        Invalid::new(
            "label_selector",
            format!("{text:?} is no requirement; use key=value, key!=value, key in (a,b), key notin (a,b), key or !key"),
        )
    };
    let key = |k: &str| {
        let k = k.trim();
        validate(k, "").map(|()| k.to_owned()).map_err(|_| refuse())
    };
    let value = |v: &str| {
        let v = v.trim();
        validate("k", v).map(|()| v.to_owned()).map_err(|_| refuse())
    };
    if let Some(rest) = text.strip_suffix(')') {
        let (head, list) = rest.split_once('(').ok_or_else(refuse)?;
        let mut words = head.split_whitespace();
        let (name, operator) = (words.next().ok_or_else(refuse)?, words.next().ok_or_else(refuse)?);
        let values = list.split(',').map(value).collect::<Result<Vec<_>, _>>()?;
        return match (operator, words.next()) {
            ("in", None) => Ok(Requirement::In(key(name)?, values)),
            ("notin", None) => Ok(Requirement::NotIn(key(name)?, values)),
            _ => Err(refuse()),
        };
    }
    if let Some((k, v)) = text.split_once("!=") {
        return Ok(Requirement::Differs(key(k)?, value(v)?));
    }
    if let Some((k, v)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Requirement::Equals(key(k)?, value(v)?));
    }
    text.strip_prefix('!').map_or_else(|| key(text).map(Requirement::Exists), |k| key(k).map(Requirement::Absent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_as_kubernetes_does() {
        let labels: BTreeMap<String, String> = [("team", "web"), ("env", "a")].map(|(k, v)| (k.into(), v.into())).into();
        for (selector, expected) in [
            ("", true),
            ("team=web", true),
            ("team==web,env=a", true),
            ("team!=web", false),
            ("absent!=x", true),
            ("env in (a, b)", true),
            ("env in (b)", false),
            ("env notin (b),team", true),
            ("absent notin (b)", true),
            ("!absent", true),
            ("!team", false),
        ] {
            assert_eq!(selector.parse::<Selector>().unwrap().matches(&labels), expected, "{selector}");
        }
    }

    #[test]
    fn refuses_what_is_no_selector_or_label() {
        for bad in ["=x", "a b", "a in b", "a in ()x", "a=b=c", "é=1", "in (a)"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
        for (key, value) in [("", "x"), ("a/b/c", ""), ("-a", ""), ("A_/b", ""), ("k", "-"), ("k", &"v".repeat(64))] {
            assert!(validate(key, value).is_err(), "{key} {value}");
        }
    }
}
