//! Amounts: bytes and lengths of time.

use std::time::Duration;

use super::as_text;

const UNITS: [(&str, u64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

/// A number of bytes: plain, or with one of Kubernetes' units (`Ki`, `Mi`, `Gi`, `Ti`; `k`, `M`, `G`, `T`); a trailing `B` is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// So many MiB.
    pub const fn mebibytes(n: u64) -> Self {
        Self(n << 20)
    }

    /// The bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match UNITS.iter().find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size)) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_suffix('B').unwrap_or(text);
        let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
        let factor = match bare[digits..].trim() {
            "" => Some(1),
            "k" | "K" => Some(1_000),
            "M" => Some(1_000_000),
            "G" => Some(1_000_000_000),
            "T" => Some(1_000_000_000_000),
            unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size),
        };
        factor
            .zip(bare[..digits].parse::<u64>().ok())
            .and_then(|(factor, number)| number.checked_mul(factor))
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no number of bytes; it looks like 1073741824, 512Mi or 2Gi"))
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "a number of bytes such as 512Mi")]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(bytes) => Ok(Self(bytes)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// A length of time, such as `30s`, `90m`, `8h`, `7d` or `1h30m`; at least a second, whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// So many seconds.
    pub const fn seconds(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// So many days of 24 hours.
    pub const fn days(n: u64) -> Self {
        Self::seconds(n * 86_400)
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.0.as_secs();
        for (unit, size) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
            if rest >= size {
                write!(f, "{}{unit}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no length of time; it looks like 30s, 8h, 7d or 1h30m");
        let (mut total, mut rest) = (0u64, text);
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = rest[..digits].parse().map_err(|_| refuse())?;
            let unit = match rest[digits..].chars().next() {
                Some('d') => 86_400,
                Some('h') => 3_600,
                Some('m') => 60,
                Some('s') => 1,
                _ => return Err(refuse()),
            };
            total = number.checked_mul(unit).and_then(|n| total.checked_add(n)).ok_or_else(refuse)?;
            rest = &rest[digits + 1..];
        }
        // A century is longer than anything here is kept, and keeps sums of times far from overflow.
        if (1..=3_155_760_000).contains(&total) { Ok(Self::seconds(total)) } else { Err(refuse()) }
    }
}
as_text!(Span);
