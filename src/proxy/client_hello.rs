//! The ClientHello of TLS (RFC 8446, sections 4.1.2 and 5.1), as far as routing needs it.
//!
//! Pure: bytes in, an answer out. Guarantees that an answer other than [`Parsed::Incomplete`] never changes when more
//! bytes follow, that no input is looked at beyond [`MAX_INPUT`] bytes, and that the work of one call is linear in what
//! it is given. Records are put together again, since clients and middleboxes split a hello at will. The name that counts
//! is the outer `server_name`; ECH is not looked at. May import: nothing of ours but [`super::host_name`].

use std::borrow::Cow;

use super::host_name::{HostName, NotAName};

/// The largest handshake message that is taken, with its header: far above any real hello, post-quantum shares included.
pub const MAX_HANDSHAKE: usize = 32 * 1024;
/// The most records that one hello may be spread over.
pub const MAX_RECORDS: usize = 64;
/// The most bytes that [`parse`] needs to come to an answer.
pub const MAX_INPUT: usize = MAX_HANDSHAKE + MAX_RECORDS * RECORD_HEADER;

const RECORD_HEADER: usize = 5;
const HANDSHAKE_HEADER: usize = 4;
/// The largest TLSPlaintext fragment (RFC 8446, section 5.1).
const MAX_FRAGMENT: usize = 1 << 14;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// What the bytes so far say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// A whole hello.
    Hello(ClientHello),
    /// No hello that is taken here, whatever follows.
    Refused(Reason),
}

/// What of a hello matters for routing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The host that the client asks for; `None` without SNI, or with an IP address in its place.
    pub server_name: Option<HostName>,
}

/// Why the bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// An HTTP request in the clear.
    PlainHttp,
    /// An SSL 2.0 hello.
    SslV2,
    /// Neither TLS nor HTTP.
    NotTls,
    /// TLS, but more than [`MAX_HANDSHAKE`] bytes or [`MAX_RECORDS`] records.
    TooLarge,
    /// TLS that breaks the rules of its own lengths, or another message than a ClientHello.
    Malformed,
    /// A server name that cannot be a host name.
    InvalidName,
}

/// Reads as much of a ClientHello as `input`, the first bytes of a connection, holds.
pub fn parse(input: &[u8]) -> Parsed {
    match first_bytes(input).and_then(|()| handshake(input)).and_then(|message| hello(&message)) {
        Ok(hello) => Parsed::Hello(hello),
        Err(Stop::Incomplete) => Parsed::Incomplete,
        Err(Stop::Refused(reason)) => Parsed::Refused(reason),
    }
}

enum Stop {
    Incomplete,
    Refused(Reason),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

/// Tells TLS from what else comes to a port 443, from the first bytes alone.
fn first_bytes(input: &[u8]) -> Result<(), Stop> {
    const METHODS: [&[u8]; 10] =
        [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ", b"PRI * HTTP/"];
    match input {
        [] => return Err(Stop::Incomplete),
        [HANDSHAKE, ..] => return Ok(()),
        // SSL 2.0: a 15-bit length, then message type 1.
        [first, _, 1, ..] if first & 0x80 != 0 => return Err(Reason::SslV2.into()),
        [first] | [first, _] if first & 0x80 != 0 => return Err(Stop::Incomplete),
        _ => {}
    }
    if METHODS.iter().any(|method| input.starts_with(method)) {
        return Err(Reason::PlainHttp.into());
    }
    if METHODS.iter().any(|method| method.starts_with(input)) {
        return Err(Stop::Incomplete);
    }
    Err(Reason::NotTls.into())
}

/// The body of the first handshake message, put together from the records it is spread over. Copies only once all is there.
fn handshake(input: &[u8]) -> Result<Cow<'_, [u8]>, Stop> {
    let mut fragments: [&[u8]; MAX_RECORDS] = [&[]; MAX_RECORDS];
    let mut received = 0;
    let mut rest = input;
    for index in 0..MAX_RECORDS {
        let length = record_header(rest)?;
        let available = &rest[RECORD_HEADER..];
        fragments[index] = &available[..length.min(available.len())];
        let wanted = handshake_length(&fragments[..=index])?;
        // A hello is alone in its flight: what would follow it in the same record belongs to no protocol.
        if wanted.is_some_and(|wanted| received + length > wanted) {
            return Err(Reason::Malformed.into());
        }
        if fragments[index].len() < length {
            return Err(Stop::Incomplete);
        }
        received += length;
        if wanted == Some(received) {
            return Ok(match &fragments[..=index] {
                [whole] => Cow::Borrowed(&whole[HANDSHAKE_HEADER..]),
                parts => Cow::Owned(parts.concat().split_off(HANDSHAKE_HEADER)),
            });
        }
        rest = &available[length..];
    }
    Err(Reason::TooLarge.into())
}

/// Checks a record's header byte by byte and gives the length of its fragment.
fn record_header(input: &[u8]) -> Result<usize, Stop> {
    match input {
        [kind, ..] if *kind != HANDSHAKE => Err(Reason::Malformed.into()),
        // Any 3.x is taken: GnuTLS writes 3.0 here, TLS 1.3 writes 3.1 or 3.3.
        [_, major, ..] if *major != 3 => Err(Reason::Malformed.into()),
        [_, _, _, high, low, ..] => match usize::from(u16::from_be_bytes([*high, *low])) {
            length @ 1..=MAX_FRAGMENT => Ok(length),
            _ => Err(Reason::Malformed.into()),
        },
        _ => Err(Stop::Incomplete),
    }
}

/// The whole length of the handshake message that begins with `fragments`, when its header is there.
fn handshake_length(fragments: &[&[u8]]) -> Result<Option<usize>, Stop> {
    let mut header = fragments.iter().copied().flatten().copied();
    match header.next() {
        None => return Ok(None),
        Some(CLIENT_HELLO) => {}
        Some(_) => return Err(Reason::Malformed.into()),
    }
    let (Some(high), Some(middle), Some(low)) = (header.next(), header.next(), header.next()) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, high, middle, low]) as usize + HANDSHAKE_HEADER;
    if length > MAX_HANDSHAKE { Err(Reason::TooLarge.into()) } else { Ok(Some(length)) }
}

/// Reads a ClientHello's body. All of it is there, so whatever is missing is an error.
fn hello(body: &[u8]) -> Result<ClientHello, Stop> {
    let mut body = Reader(body);
    if body.take(2)?[0] != 3 {
        return Err(Reason::Malformed.into());
    }
    body.take(32)?;
    if body.prefixed_u8()?.len() > 32 {
        return Err(Reason::Malformed.into());
    }
    let suites = body.prefixed_u16()?;
    if suites.is_empty() || suites.len() % 2 != 0 || body.prefixed_u8()?.is_empty() {
        return Err(Reason::Malformed.into());
    }
    if body.0.is_empty() {
        return Ok(ClientHello { server_name: None });
    }
    let mut extensions = Reader(body.prefixed_u16()?);
    body.end()?;
    let mut server_name = None;
    let mut named = false;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let data = extensions.prefixed_u16()?;
        if kind == SERVER_NAME {
            if named {
                return Err(Reason::Malformed.into());
            }
            named = true;
            server_name = server_name_extension(data)?;
        }
    }
    Ok(ClientHello { server_name })
}

/// The host name of a `server_name` extension (RFC 6066, section 3): at most one, other kinds of name are skipped.
fn server_name_extension(data: &[u8]) -> Result<Option<HostName>, Stop> {
    let mut data = Reader(data);
    let mut names = Reader(data.prefixed_u16()?);
    data.end()?;
    if names.0.is_empty() {
        return Err(Reason::Malformed.into());
    }
    let mut host = None;
    while !names.0.is_empty() {
        let kind = names.take(1)?[0];
        let name = names.prefixed_u16()?;
        if kind == HOST_NAME && host.replace(name).is_some() {
            return Err(Reason::Malformed.into());
        }
    }
    match host.map(HostName::from_bytes) {
        None | Some(Err(NotAName::Address)) => Ok(None),
        Some(Ok(name)) => Ok(Some(name)),
        Some(Err(NotAName::Form)) => Err(Reason::InvalidName.into()),
    }
}

/// Takes fields off the front of a slice; what is too short is malformed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Reason> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Reason::Malformed)?;
        self.0 = tail;
        Ok(head)
    }

    fn u16(&mut self) -> Result<u16, Reason> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn prefixed_u8(&mut self) -> Result<&'a [u8], Reason> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    fn prefixed_u16(&mut self) -> Result<&'a [u8], Reason> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn end(&self) -> Result<(), Reason> {
        if self.0.is_empty() { Ok(()) } else { Err(Reason::Malformed) }
    }
}

#[cfg(test)]
pub(super) mod tests;
