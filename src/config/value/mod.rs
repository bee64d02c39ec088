//! The values that keys take: addresses, ranges, amounts, times, secrets. Each reads and writes one plain form and says, when
//! it is given another, what it looks like.
//!
//! May import: `domain`.

mod address;
mod quantity;
mod range;
mod secret;
mod values_yaml;

pub use address::{HostPort, ListenAddress, Listener};
pub use quantity::{Size, Span};
pub use range::{PortRange, UidRange};
pub use secret::SecretUrl;
pub use values_yaml::ChartValues;

/// Serde by way of `Display` and `FromStr`, for values that are written as text.
macro_rules! as_text {
    ($Type:ty) => {
        impl serde::Serialize for $Type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
use as_text;

#[cfg(test)]
mod tests;
