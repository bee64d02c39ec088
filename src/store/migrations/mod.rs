//! The schema of each database, as numbered steps that are applied in order at open.
//!
//! A step that was released is never changed; a new one is added. Statements are the database's own DDL; the columns
//! have the same names and meanings in every database, so that a query exists once.

/// One step of a schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// The version that it brings the schema to; steps are numbered from 1 without gaps.
    pub version: i64,
    /// Its statements.
    pub sql: &'static str,
}

/// The steps of SQLite's schema.
pub(super) const SQLITE: &[Migration] = &[
    Migration { version: 1, sql: include_str!("sqlite/0001_first.sql") },
    Migration { version: 2, sql: include_str!("sqlite/0002_nodes.sql") },
];
