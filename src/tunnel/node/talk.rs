//! The conversation with the platform on the control stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::connect::Established;
use super::live::{Live, Question};
use super::{Shared, dial};
use crate::domain::node::Fate;
use crate::tunnel::frame::{self, MAX_FROM_NODE};
use crate::tunnel::protocol::{FromNode, FromPlatform};

/// The platform asks after 25 seconds of silence; when it did not, the connection is dead.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the platform may take to take a frame.
const WRITE_DEADLINE: Duration = Duration::from_secs(20);
/// How often the node says how it is when nothing changed.
const REPORT_EVERY: Duration = Duration::from_secs(300);
/// The least time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The most questions that wait for their answers.
const MAX_QUESTIONS: usize = 8;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It was lost; a sentence.
    Lost(String),
    /// The platform says that the membership has ended.
    Ended(Fate, String),
}

/// Speaks until the connection ends.
pub(super) async fn talk(shared: Arc<Shared>, established: Established, live: Arc<Live>, mut questions: mpsc::Receiver<Question>) -> End {
    let Established { inbound, mut frames, mut writer, first, .. } = established;
    let _dials = AbortOnDropHandle::new(tokio::spawn(dial::serve(Arc::clone(&shared), inbound)));
    let mut asked: HashMap<u64, Question> = HashMap::new();
    let mut number = 0;
    let mut report = shared.report.subscribe();
    let (mut heard, mut report_at) = (Instant::now(), Instant::now());
    let mut next = Some(first);
    let end = loop {
        if let Some(frame) = next.take() {
            heard = Instant::now();
            match hear(&shared, frame, &mut asked) {
                Heard::Nothing => {}
                Heard::Ping if say(&mut writer, &FromNode::Pong).await => {}
                Heard::Ping => break lost("the platform takes nothing"),
                Heard::Ended(fate, message) => break End::Ended(fate, message),
            }
        }
        tokio::select! {
            frame = frames.next::<FromPlatform>() => match frame {
                Ok(Some(frame)) => next = Some(frame),
                Ok(None) => break lost("the platform closed the tunnel"),
                Err(error) => break lost(&format!("the tunnel was cut: {error}")),
            },
            Some(question) = questions.recv() => {
                if asked.len() >= MAX_QUESTIONS {
                    if let Some(reply) = question.reply {
                        // Nobody may wait for it any more.
                        drop(reply.send(Err("this node asks the platform too much at once; ask again".to_owned())));
                    }
                    continue;
                }
                number += 1;
                let frame = FromNode::Ask { number, ask: question.ask.clone() };
                asked.insert(number, question);
                if !say(&mut writer, &frame).await {
                    break lost("the platform takes nothing");
                }
            }
            _ = report.changed() => report_at = report_at.min(Instant::now() + REPORT_INTERVAL),
            () = sleep_until(report_at) => {
                report_at = Instant::now() + REPORT_EVERY;
                let latest = report.borrow_and_update().clone();
                if let Some(latest) = latest
                    && !say(&mut writer, &FromNode::Report(latest)).await
                {
                    break lost("the platform takes nothing");
                }
            }
            () = sleep_until(heard + SILENCE) => break lost("nothing was heard of the platform for a minute"),
        }
    };
    live.session.close();
    end
}

fn lost(why: &str) -> End {
    End::Lost(why.to_owned())
}

enum Heard {
    Nothing,
    Ping,
    Ended(Fate, String),
}

fn hear(shared: &Shared, frame: FromPlatform, asked: &mut HashMap<u64, Question>) -> Heard {
    match frame {
        FromPlatform::State(state) => {
            shared.state.send_replace(Some(Arc::new(state)));
        }
        FromPlatform::Reply { number, answer } => {
            if let Some(reply) = asked.remove(&number).and_then(|question| question.reply) {
                // Nobody may wait for it any more.
                drop(reply.send(answer));
            }
        }
        FromPlatform::Step { number, step, message } => {
            if let Some(question) = asked.get(&number) {
                (question.steps)(&step, &message);
            }
        }
        FromPlatform::Ended { fate, message } => return Heard::Ended(fate, message),
        FromPlatform::Ping => return Heard::Ping,
    }
    Heard::Nothing
}

/// Writes a frame; `false`: it was not taken in time.
async fn say(writer: &mut (impl AsyncWrite + Unpin), frame: &FromNode) -> bool {
    matches!(timeout(WRITE_DEADLINE, frame::write(writer, frame, MAX_FROM_NODE)).await, Ok(Ok(())))
}
