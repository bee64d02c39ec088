//! Values for a Helm chart.

/// Values for a Helm chart: YAML text (as the chart's own `values: |` hands it on) or a mapping; empty means none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChartValues(String);

impl ChartValues {
    /// The values as YAML text.
    pub fn as_yaml(&self) -> &str {
        &self.0
    }
}

impl serde::Serialize for ChartValues {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for ChartValues {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) if text.trim().is_empty() => Ok(Self::default()),
            serde_json::Value::String(text) => match crate::config::yaml::parse(&text) {
                Ok(Some(root)) if root.is_mapping() => Ok(Self(text)),
                Ok(_) => Err(D::Error::custom("this is no mapping of chart values; it looks like `controlPlane: {...}`")),
                Err(e) => Err(D::Error::custom(format!("the chart values are no YAML: {} (line {} of the values)", e.message, e.at.line))),
            },
            // JSON is YAML.
            mapping @ serde_json::Value::Object(_) => Ok(Self(mapping.to_string())),
            _ => Err(D::Error::custom("this is no mapping of chart values; it looks like `controlPlane: {...}`")),
        }
    }
}
