//! The small layer over the databases: statements with `$1`-style parameters, values, rows, transactions.

use async_trait::async_trait;

use super::{Error, Result};

/// A value that goes into or comes out of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// TEXT.
    Text(String),
    /// BIGINT; times are microseconds since the Unix epoch.
    Int(i64),
    /// BOOLEAN (SQLite stores 0 and 1).
    Bool(bool),
    /// BYTEA or BLOB.
    Bytes(Vec<u8>),
}

macro_rules! into_value {
    ($($from:ty => $make:expr;)+) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                let make: fn($from) -> Self = $make;
                make(value)
            }
        }
    )+};
}

into_value! {
    &str => |v| Self::Text(v.to_owned());
    &String => |v| Self::Text(v.clone());
    String => Self::Text;
    i64 => Self::Int;
    u16 => |v| Self::Int(v.into());
    u32 => |v| Self::Int(v.into());
    bool => Self::Bool;
    Vec<u8> => Self::Bytes;
    &[u8] => |v| Self::Bytes(v.to_owned());
    std::net::IpAddr => |v| Self::Text(v.to_canonical().to_string());
    crate::domain::Timestamp => |v| Self::Int(v.as_micros());
    crate::domain::ProjectId => |v| Self::Text(v.to_string());
    crate::domain::ClusterId => |v| Self::Text(v.to_string());
    crate::domain::JobId => |v| Self::Text(v.to_string());
    crate::domain::UserId => |v| Self::Text(v.to_string());
    crate::domain::SessionId => |v| Self::Text(v.to_string());
    crate::domain::ApiTokenId => |v| Self::Text(v.to_string());
    crate::domain::KubeconfigId => |v| Self::Text(v.to_string());
    crate::domain::JoinTokenId => |v| Self::Text(v.to_string());
    crate::domain::NodeId => |v| Self::Text(v.to_string());
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// What a value can be read as.
pub trait FromValue: Sized {
    /// The value, or `None` when it is of another type or form.
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($to:ty => $pattern:pat => $make:expr;)+) => {$(
        impl FromValue for $to {
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    $pattern => $make,
                    _ => None,
                }
            }
        }
    )+};
}

from_value! {
    String => Value::Text(v) => Some(v);
    i64 => Value::Int(v) => Some(v);
    u16 => Value::Int(v) => v.try_into().ok();
    u32 => Value::Int(v) => v.try_into().ok();
    u64 => Value::Int(v) => v.try_into().ok();
    Vec<u8> => Value::Bytes(v) => Some(v);
    crate::domain::Timestamp => Value::Int(v) => Some(Self::from_micros(v));
    crate::domain::ProjectId => Value::Text(v) => v.parse().ok();
    crate::domain::ClusterId => Value::Text(v) => v.parse().ok();
    crate::domain::JobId => Value::Text(v) => v.parse().ok();
    crate::domain::UserId => Value::Text(v) => v.parse().ok();
    crate::domain::SessionId => Value::Text(v) => v.parse().ok();
    crate::domain::ApiTokenId => Value::Text(v) => v.parse().ok();
    crate::domain::KubeconfigId => Value::Text(v) => v.parse().ok();
    crate::domain::JoinTokenId => Value::Text(v) => v.parse().ok();
    crate::domain::NodeId => Value::Text(v) => v.parse().ok();
    std::net::IpAddr => Value::Text(v) => v.parse().ok();
    crate::domain::node::Fate => Value::Text(v) => v.parse().ok();
    crate::domain::user::Role => Value::Text(v) => v.parse().ok();
    crate::domain::job::JobState => Value::Text(v) => v.parse().ok();
    crate::domain::kubeconfig::ClusterRole => Value::Text(v) => v.parse().ok();
}

impl FromValue for bool {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Bool(v) => Some(v),
            Value::Int(v @ (0 | 1)) => Some(v == 1),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Option<Self> {
        if value == Value::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

/// A row of a result: its values in the order of the SELECT list.
#[derive(Debug, Clone)]
pub struct Row(pub Vec<Value>);

impl Row {
    /// Takes the value of a column (0 is the first) out of the row.
    pub fn take<T: FromValue>(&mut self, column: usize) -> Result<T> {
        let value = self.0.get_mut(column).map(|value| std::mem::replace(value, Value::Null));
        value
            .and_then(T::from_value)
            .ok_or_else(|| Error::Database(anyhow::anyhow!("column {column} of a row cannot be read as {}", std::any::type_name::<T>())))
    }

    /// Takes a column of JSON text out of the row.
    pub fn take_json<T: serde::de::DeserializeOwned>(&mut self, column: usize) -> Result<T> {
        let text: String = self.take(column)?;
        serde_json::from_str(&text)
            .map_err(|e| Error::Database(anyhow::Error::new(e).context(format!("column {column} of a row holds JSON of another form"))))
    }
}

/// Something that runs statements.
#[async_trait]
pub trait Sql: Send {
    /// Runs a statement and returns how many rows it changed.
    async fn execute(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<u64>;
    /// Runs a query and returns its rows.
    async fn query(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<Vec<Row>>;
}

/// A transaction that may write.
#[async_trait]
pub trait Transaction: Sql {
    /// Makes it lasting.
    async fn commit(self: Box<Self>) -> Result<()>;
}

/// A database that is open and migrated.
#[async_trait]
pub trait Database: Send + Sync {
    /// Begins a transaction that may write.
    async fn begin(&self) -> Result<Box<dyn Transaction>>;
    /// A consistent view for reading.
    async fn read(&self) -> Result<Box<dyn Sql>>;
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Database(error)
    }
}
