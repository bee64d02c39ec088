//! Ranges of ports and of user ids, written `first-last`, both inclusive.

use super::as_text;

fn ends<T: std::str::FromStr + PartialOrd>(text: &str) -> Option<(T, T)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

/// Ports from `first` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The first port; not 0.
    pub first: u16,
    /// The last port, which belongs to the range.
    pub last: u16,
}

impl PortRange {
    /// Whether a port lies in the range.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl std::str::FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match ends(text) {
            Some((first, last)) if first > 0 => Ok(Self { first, last }),
            _ => Err(format!("{text:?} is no range of ports; it looks like 30000-32767, the smaller first")),
        }
    }
}
as_text!(PortRange);

/// User ids from `first` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The first uid; never one of the system's own below 1000.
    pub first: u32,
    /// The last uid, which belongs to the range.
    pub last: u32,
}

impl UidRange {
    /// How many uids the range holds.
    pub const fn count(self) -> u32 {
        (self.last - self.first).saturating_add(1)
    }
}

impl std::fmt::Display for UidRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl std::str::FromStr for UidRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match ends(text) {
            // The last uid of all, 2^32-1, is no user: setuid(2) reads it as "unchanged".
            Some((first, last)) if first >= 1000 && last < u32::MAX => Ok(Self { first, last }),
            Some((first, _)) if first < 1000 => Err(format!("{text:?} holds uids of the system; begin at 1000 or above")),
            _ => Err(format!("{text:?} is no range of user ids; it looks like 2000000-2065535, the smaller first")),
        }
    }
}
as_text!(UidRange);
