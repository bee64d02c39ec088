//! The API as its clients meet it: whole requests against a real SQLite store.

mod access;
mod clusters;
mod concurrency;
mod harness;
mod jobs;
mod kubeconfigs;
mod problems;
mod sessions;
mod settings;
mod streams;
mod users;
