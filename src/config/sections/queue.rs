//! `queue.*` and `rabbitmq.*`: what wakes workers. Imports `config::value`.

use crate::config::section::section;
use crate::config::value::SecretUrl;
use crate::domain::Invalid;

/// What wakes workers when a job is due; the database decides who has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Within the process.
    #[default]
    Embedded,
    /// PostgreSQL's NOTIFY.
    Postgres,
    /// RabbitMQ.
    Rabbitmq,
}

section! {
    /// How workers learn of jobs.
    pub struct Queue {
        /// What wakes workers: `embedded`, `postgres` (needs `database.dsn`) or `rabbitmq` (needs `rabbitmq.url`).
        transport: Transport = Transport::Embedded,
    }
}

section! {
    /// The RabbitMQ that wakes workers.
    pub struct Rabbitmq {
        /// `amqp://user:password@host:5672/%2f`, or `amqps://` with TLS.
        url: SecretUrl = SecretUrl::default(),
    }
}

impl Rabbitmq {
    /// Refuses what is no AMQP URL.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        let url = self.url.expose();
        if !self.url.is_empty() && !url.starts_with("amqp://") && !url.starts_with("amqps://") {
            problems.push(Invalid::new("rabbitmq.url", "this is no AMQP URL; it looks like amqp://kubebyon:password@host:5672/%2f"));
        }
    }
}

/// The transport has what it needs.
pub fn validate(queue: &Queue, rabbitmq: &Rabbitmq, database: &super::Database, problems: &mut Vec<Invalid>) {
    match queue.transport {
        Transport::Postgres if database.dsn.is_empty() => {
            problems.push(Invalid::new("queue.transport", "postgres needs database.dsn; with SQLite use embedded"));
        }
        Transport::Rabbitmq if rabbitmq.url.is_empty() => {
            problems.push(Invalid::new("queue.transport", "rabbitmq needs rabbitmq.url"));
        }
        _ => {}
    }
}
