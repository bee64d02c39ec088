//! Names that people give: RFC 1123 labels, within limits, and none of our own words.

use super::{Ambient, Invalid};

/// The longest name of a cluster: `<name>-<6 random>-node` must fit a DNS label (63, RFC 1035).
pub const CLUSTER_NAME_MAX: usize = 40;
/// The longest name of a project.
pub const PROJECT_NAME_MAX: usize = 40;
/// Words that stand for something on the command line or in host names, so nothing may be named so.
pub const RESERVED: &[&str] = &[
    "add",
    "all",
    "api",
    "create",
    "delete",
    "events",
    "get",
    "install",
    "join",
    "kubebyon",
    "list",
    "localhost",
    "logs",
    "ls",
    "new",
    "none",
    "remove",
    "revoke",
    "rm",
    "self",
    "upgrade",
    "versions",
    "www",
];

/// Checks `name` as a DNS label (RFC 1123) of at most `max` bytes that is not reserved.
pub fn validate(field: &str, name: &str, max: usize) -> Result<(), Invalid> {
    if name.is_empty() {
        return Err(Invalid::new(field, "a name is needed: lower-case letters, digits and '-'"));
    }
    if name.len() > max {
        return Err(Invalid::new(field, format!("{name:?} has {} characters; at most {max} are allowed", name.len())));
    }
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    if !bytes.iter().copied().all(inner) || !edge(bytes[0]) || !edge(bytes[bytes.len() - 1]) {
        return Err(Invalid::new(
            field,
            format!("{name:?} is no RFC 1123 label: use lower-case letters, digits and '-', and begin and end with a letter or digit"),
        ));
    }
    if RESERVED.contains(&name) {
        return Err(Invalid::new(field, format!("{name:?} is reserved; choose another name")));
    }
    if uuid::Uuid::try_parse(name).is_ok() {
        return Err(Invalid::new(field, "a name may not have the form of an id"));
    }
    Ok(())
}

/// The label of a cluster: `<name>-<6 random>`, unique in the installation and permanent; the first part of its host name.
pub fn cluster_label(ambient: &Ambient, name: &str) -> String {
    // No vowels and no look-alikes, so that no word and no misreading comes out.
    const ALPHABET: &[u8; 26] = b"bcdfghjkmnpqrstvwxz2456789";
    let suffix: String = (0..6).map(|_| char::from(ALPHABET[ambient.below(26) as usize])).collect();
    format!("{name}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_labels_and_refuses_the_rest() {
        for good in ["a", "demo", "a-b", "x1", "0a", &"a".repeat(40)] {
            assert_eq!(validate("name", good, CLUSTER_NAME_MAX), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "list", "a b", "a\0", &"a".repeat(41), "0190163d-8694-739b-aea5-966c26f8ad90"]
        {
            assert!(validate("name", bad, CLUSTER_NAME_MAX).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_label_of_the_longest_name_fits_a_dns_label() {
        let label = cluster_label(&Ambient::system(), &"a".repeat(CLUSTER_NAME_MAX));
        assert_eq!(label.len(), CLUSTER_NAME_MAX + 7);
        assert!(format!("{label}-node").len() <= 63);
    }
}
