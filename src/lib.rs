//! KubeBYON hands out Kubernetes clusters to tenants who bring their own nodes.
//!
//! This is the map of its source. Each module's own page says what it guarantees and what it may import;
//! `tests/architecture.rs` holds the import rules.
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`domain`] | types and rules without I/O: clusters, jobs, names, addresses, the clock |
//! | [`store`] | what is kept: transactions, one module for each kind of row, SQLite |
//! | [`queue`] | jobs: outbox, leases, transports that wake workers |
//! | [`jobs`] | the work itself, one job a file |
//! | [`pki`] | certificate authorities, leaves, kubeconfigs, sealing |
//! | [`assets`] | Kubernetes programs by version: fetch, verify, build |
//! | [`image_archive`] | images packed as archives that container runtimes import |
//! | [`process`] | one program as a process: start, watch, find again, wait before the next start |
//! | [`engine`] | what runs control planes: the common plan, and the local engine |
//! | [`tunnel`] | between API servers and nodes: the terminator beside each API server, the node's side, what they say |
//! | [`routes`] | routes of a machine: plan and diff (pure), netlink |
//! | [`node`] | a tenant's machine: join, the node role, its network, leave |
//! | [`proxy`] | the front door: ClientHello, host map, forwarding |
//! | [`api`] | HTTP: router, sign-in, problems, `v1` resources |
//! | [`config`] | configuration: layers, sections, checks |
//! | [`runtime`] | lifecycle, telemetry |
//! | [`doctor`] | checks of a machine, each with its remedy |
//! | [`cli`] | the command line; it alone wires everything |

pub mod api;
pub mod assets;
pub mod cli;
pub mod config;
pub mod doctor;
pub mod domain;
pub mod engine;
pub mod image_archive;
pub mod jobs;
pub mod node;
pub mod pki;
pub mod process;
pub mod proxy;
pub mod queue;
pub mod routes;
pub mod runtime;
pub mod store;
pub mod tunnel;
