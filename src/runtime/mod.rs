//! The process itself: how it starts and stops, what it tells systemd, what it logs, and that it is alone with its data folder.
//!
//! Guarantees: a task that fails ends the process, in words and with exit code 1; a stop lets go softly before it lets go hard;
//! one daemon at most uses a data folder. May import: `domain`.

pub mod data_dir;
pub mod lifecycle;
pub mod lock;
pub mod service_manager;
pub mod telemetry;

pub use data_dir::prepare as prepare_data_dir;
pub use lifecycle::{Ended, Lifecycle, Tasks};
pub use lock::DataDirLock;
pub use telemetry::{Format, Telemetry};
