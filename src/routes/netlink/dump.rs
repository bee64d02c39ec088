//! A listing that is whole: one that changed under the kernel's hands is asked for again.

use std::time::Duration;

use futures_util::StreamExt as _;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::Handle;
use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};

use super::NetlinkError;

/// How often a listing is tried. Each takes milliseconds, and the waits between them half a second in all.
const TRIES: u32 = 8;
/// The longest that one try may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// What became of one try.
enum Tried {
    Whole(Vec<RouteNetlinkMessage>),
    Torn,
}

/// The answers to a request for a listing of `what`.
pub(super) async fn dump(
    handle: &Handle,
    what: &'static str,
    request: RouteNetlinkMessage,
) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_millis(u64::from(attempt) * 18)).await;
        }
        let tried = tokio::time::timeout(DEADLINE, once(handle, what, request.clone()));
        match tried.await.map_err(|_| NetlinkError::Closed)?? {
            Tried::Whole(listed) => return Ok(listed),
            Tried::Torn => {}
        }
    }
    Err(NetlinkError::Torn(what))
}

async fn once(handle: &Handle, what: &'static str, request: RouteNetlinkMessage) -> Result<Tried, NetlinkError> {
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut answers = handle.clone().request(message).map_err(|_| NetlinkError::Closed)?;
    let mut listed = Vec::new();
    let mut torn = false;
    while let Some(answer) = answers.next().await {
        torn |= answer.header.flags & NLM_F_DUMP_INTR != 0;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => listed.push(message),
            NetlinkPayload::Done(_) => return Ok(if torn { Tried::Torn } else { Tried::Whole(listed) }),
            NetlinkPayload::Error(error) => {
                return Err(NetlinkError::Refused { action: format!("list {what}"), error: error.to_io() });
            }
            NetlinkPayload::Overrun(_) => torn = true,
            _ => {}
        }
    }
    // The stream ended without the kernel's last word.
    Err(NetlinkError::Closed)
}
