//! The API as its clients meet it: whole requests against a real SQLite store.

mod access;
mod assets;
mod clusters;
mod concurrency;
mod harness;
mod jobs;
mod join;
mod join_script;
mod join_tokens;
mod kubeconfigs;
mod machines;
mod nodes;
mod problems;
mod sessions;
mod settings;
mod streams;
mod users;
