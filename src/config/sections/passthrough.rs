//! `passthrough`: names of others on the same port. Imports `config::value`.

use crate::config::value::HostPort;
use crate::domain::{Invalid, access};

/// A name on the shared port that belongs to another server.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passthrough {
    /// The name that clients ask for (SNI).
    pub host: String,
    /// Where its connections go, untouched.
    pub to: HostPort,
}

/// Each name is a host name and stands once.
pub fn validate(list: &[Passthrough], problems: &mut Vec<Invalid>) {
    for (index, entry) in list.iter().enumerate() {
        let field = format!("passthrough[{index}].host");
        if entry.host.parse::<std::net::IpAddr>().is_ok() {
            problems.push(Invalid::new(field, format!("{:?} is an address; clients send only names in a ClientHello", entry.host)));
        } else if let Err(invalid) = access::validate_host(&field, &entry.host) {
            problems.push(invalid);
        } else if list[..index].iter().any(|other| other.host.eq_ignore_ascii_case(&entry.host)) {
            problems.push(Invalid::new(field, format!("{} is given twice", entry.host)));
        }
    }
}
