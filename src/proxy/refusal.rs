//! How a connection is turned away so that the client learns why.
//!
//! Guarantees a bounded time and a bounded number of bytes read. After the answer the write side is shut and what the client
//! still sends is read for a moment: closing with unread bytes sends RST, and the client would never see the answer.
//! May import: nothing of ours but [`super::stats`].

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::stats::Refusal;

/// How long a client that was turned away may take to close.
const LINGER: Duration = Duration::from_secs(1);
/// How many bytes of it are read meanwhile.
const LINGER_BYTES: usize = 64 * 1024;

/// A fatal TLS alert in a record of version 3.1, which every client takes before versions are agreed (RFC 8446, 5.1 and 6.2).
const fn alert(description: u8) -> [u8; 7] {
    [21, 3, 1, 0, 2, 2, description]
}

const DECODE_ERROR: [u8; 7] = alert(50);
const INTERNAL_ERROR: [u8; 7] = alert(80);
const UNRECOGNIZED_NAME: [u8; 7] = alert(112);

const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 57\r\n\
    Connection: close\r\n\
    \r\n\
    This port speaks HTTPS: use https:// in place of http://\n";

/// What a client is told, if anything.
const fn answer(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::PlainHttp => BAD_REQUEST,
        Refusal::UnknownName | Refusal::InvalidName => &UNRECOGNIZED_NAME,
        Refusal::Malformed | Refusal::TooLarge => &DECODE_ERROR,
        Refusal::BackendUnreachable | Refusal::BackendTimeout => &INTERNAL_ERROR,
        Refusal::SslV2
        | Refusal::NotTls
        | Refusal::HelloTimeout
        | Refusal::ClosedEarly
        | Refusal::SourceLimit
        | Refusal::ConnectionLimit
        | Refusal::OutOfDescriptors => &[],
    }
}

/// Turns a connection away and closes it.
pub(super) async fn turn_away(mut stream: TcpStream, refusal: Refusal) {
    let answer = answer(refusal);
    if answer.is_empty() {
        return;
    }
    // Whether it arrives is the client's affair.
    drop(tokio::time::timeout(LINGER, say(&mut stream, answer)).await);
}

async fn say(stream: &mut TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    let mut scratch = [0; 2048];
    let mut left = LINGER_BYTES;
    while left > 0 {
        stream.readable().await?;
        match stream.try_read(&mut scratch) {
            Ok(0) => break,
            Ok(count) => left = left.saturating_sub(count),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_and_an_impossible_name_get_the_same_alert() {
        assert_eq!(answer(Refusal::UnknownName), [0x15, 3, 1, 0, 2, 2, 0x70]);
        assert_eq!(answer(Refusal::UnknownName), answer(Refusal::InvalidName));
    }

    #[test]
    fn the_answer_to_plain_http_has_the_length_that_it_says() {
        let text = std::str::from_utf8(answer(Refusal::PlainHttp)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head} {}", body.len());
        assert!(body.contains("https://"));
    }
}
