//! A connection that is up: streams to the API server, and questions to the platform.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::API_DEADLINE;
use crate::tunnel::frame::{self, FrameError, MAX_OPENING};
use crate::tunnel::protocol::{Answer, Ask, Opened, Opening};
use crate::tunnel::session::{Session, TunnelStream};

/// The most streams to the API server at a time; below what the terminator takes, whose count may lag behind.
const MAX_API_STREAMS: usize = 160;
/// The most streams that wait for the platform's answer.
const MAX_WAITING: usize = 32;
/// How long the platform may take for one stream when it is tried whether it is there.
const TRIAL_DEADLINE: Duration = Duration::from_secs(5);

/// Takes steps of what was asked for.
pub(super) type Steps = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// A question with those who wait for its answer.
pub(super) struct Question {
    pub(super) ask: Ask,
    pub(super) steps: Steps,
    pub(super) reply: Option<oneshot::Sender<Result<Answer, String>>>,
}

impl Question {
    pub(super) fn new(ask: Ask, steps: Steps) -> Self {
        Self { ask, steps, reply: None }
    }
}

/// A connection that is up.
pub(super) struct Live {
    pub(super) session: Session,
    questions: mpsc::Sender<Question>,
    room: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Live {
    pub(super) fn new(session: Session) -> (Arc<Self>, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(8);
        let (room, waiting) = (Arc::new(Semaphore::new(MAX_API_STREAMS)), Arc::new(Semaphore::new(MAX_WAITING)));
        (Arc::new(Self { session, questions, room, waiting }), asked)
    }

    /// Whether it is known to be up no more.
    pub(super) fn is_lost(&self) -> bool {
        self.session.is_closed()
    }

    /// A stream to the API server.
    pub(super) async fn api_stream(&self) -> io::Result<TunnelStream> {
        let closed = |_| io::Error::from(io::ErrorKind::NotConnected);
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(closed)?;
        let waiting = Arc::clone(&self.waiting).acquire_owned().await.map_err(closed)?;
        let session = self.session.clone();
        // It goes on when the caller leaves, so that what waits is counted.
        let asked = tokio::spawn(async move {
            let _waiting = waiting;
            tokio::time::timeout(API_DEADLINE, open_api(&session)).await
        });
        match asked.await {
            Ok(Ok(Ok((Opened::Ok, stream)))) => Ok(stream.holding(room)),
            Ok(Ok(Ok((Opened::Refused { reason, .. }, _)))) => Err(io::Error::other(format!("the platform refuses: {reason}"))),
            Ok(Ok(Err(error))) => Err(io::Error::new(io::ErrorKind::ConnectionReset, error)),
            Ok(Err(_)) | Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the platform did not answer in time")),
        }
    }

    /// Whether the platform is there: it answers a stream, whatever it says.
    pub(super) async fn answers(&self) -> bool {
        matches!(tokio::time::timeout(TRIAL_DEADLINE, open_api(&self.session)).await, Ok(Ok(_)))
    }

    /// Asks; `None`: the connection was lost before the answer came.
    pub(super) async fn ask(&self, mut question: Question) -> Option<Result<Answer, String>> {
        let (reply, answer) = oneshot::channel();
        question.reply = Some(reply);
        self.questions.send(question).await.ok()?;
        answer.await.ok()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.session.close();
    }
}

async fn open_api(session: &Session) -> Result<(Opened, TunnelStream), FrameError> {
    let mut stream = session.open().await?;
    frame::write(&mut stream, &Opening::Api, MAX_OPENING).await?;
    Ok((frame::read(&mut stream, MAX_OPENING).await?, stream))
}
