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
    crate::domain::Timestamp => |v| Self::Int(v.as_micros());
    crate::domain::ProjectId => |v| Self::Text(v.to_string());
    crate::domain::ClusterId => |v| Self::Text(v.to_string());
    crate::domain::JobId => |v| Self::Text(v.to_string());
    crate::domain::UserId => |v| Self::Text(v.to_string());
    crate::domain::SessionId => |v| Self::Text(v.to_string());
    crate::domain::ApiTokenId => |v| Self::Text(v.to_string());
    crate::domain::KubeconfigId => |v| Self::Text(v.to_string());
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of a result: its values in the order of the SELECT list.
#[derive(Debug, Clone)]
pub struct Row(pub Vec<Value>);

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
