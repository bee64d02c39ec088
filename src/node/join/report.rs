//! Telling of steps, here and in the cluster's events. That the platform is not told is nobody's loss.

use super::client::Client;
use crate::domain::join::{StepReport, TokenContent};
use crate::node::show::Show;

/// The longest message that the platform takes, in characters.
const MAX_MESSAGE: usize = 500;

/// Tells of one join.
pub struct Reporter<'a> {
    client: &'a Client,
    token: &'a TokenContent,
    name: String,
    show: &'a dyn Show,
}

impl<'a> Reporter<'a> {
    /// Tells of a join with that token under that name.
    pub fn new(client: &'a Client, token: &'a TokenContent, name: &str, show: &'a dyn Show) -> Self {
        Self { client, token, name: name.to_owned(), show }
    }

    /// Where people see it.
    pub fn show(&self) -> &dyn Show {
        self.show
    }

    /// Tells of a step.
    pub async fn step(&self, step: &str, message: &str) {
        self.show.step(step, message);
        self.send(step, message, false).await;
    }

    /// Tells that the join ended here, to the platform alone: people see the error itself.
    pub async fn failed(&self, message: &str) {
        self.send("Failed", message, true).await;
    }

    async fn send(&self, step: &str, message: &str, failed: bool) {
        let report = StepReport {
            token: self.token.id,
            secret: self.token.secret.clone(),
            name: self.name.clone(),
            step: step.to_owned(),
            message: message.chars().take(MAX_MESSAGE).collect(),
            failed,
        };
        self.client.report(&report).await;
    }
}
