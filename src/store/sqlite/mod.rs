//! SQLite: one writer, readers in a pool, WAL.
