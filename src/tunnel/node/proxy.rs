//! Proxies between a node and the platform: which one, and how it is asked (CONNECT, RFC 9110, 9.3.6).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest answer of a proxy that is read, in bytes.
const MAX_ANSWER: usize = 8 * 1024;
/// How long a proxy may take to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// A proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether it is spoken to by TLS (`https://`).
    pub tls: bool,
    /// The value of `Proxy-Authorization`.
    authorization: Option<SecretString>,
}

/// Which proxy leads where, as `HTTPS_PROXY` and `NO_PROXY` say.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    proxy: Option<Proxy>,
    without: Vec<Without>,
}

/// What `NO_PROXY` names.
#[derive(Debug, Clone)]
enum Without {
    All,
    Network(IpNet),
    /// A host and those below it; with a port, on that port alone.
    Host(String, Option<u16>),
}

impl Proxies {
    /// Reads `HTTPS_PROXY` and `NO_PROXY` (or their lower-case names) of variables.
    ///
    /// # Errors
    /// The proxy's URL is not understood: a sentence.
    pub fn from_variables(variables: &BTreeMap<String, String>) -> Result<Self, String> {
        let get = |name: &str| {
            let found = variables.get(name).or_else(|| variables.get(&name.to_ascii_lowercase()));
            found.map(|value| value.trim()).filter(|value| !value.is_empty())
        };
        let proxy = get("HTTPS_PROXY").map(Proxy::parse).transpose()?;
        let without = get("NO_PROXY").unwrap_or_default().split(',').filter_map(|entry| Without::parse(entry.trim())).collect();
        Ok(Self { proxy, without })
    }

    /// The proxy that leads to a host; `None`: it is reached directly.
    pub fn to(&self, host: &str, port: u16) -> Option<&Proxy> {
        self.proxy.as_ref().filter(|_| !self.without.iter().any(|entry| entry.names(host, port)))
    }
}

impl Without {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::All);
        }
        if let Ok(network) = entry.parse::<IpNet>() {
            return Some(Self::Network(network));
        }
        if let Ok(address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Some(Self::Network(address.into()));
        }
        let (host, port) = match entry.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => (host, Some(port)),
            _ => (entry, None),
        };
        let host = host.trim_start_matches('*').trim_start_matches('.').to_ascii_lowercase();
        (!host.is_empty()).then_some(Self::Host(host, port))
    }

    fn names(&self, host: &str, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Network(network) => host.parse::<IpAddr>().is_ok_and(|address| network.contains(&address)),
            Self::Host(name, on) => {
                let host = host.to_ascii_lowercase();
                let below = host.strip_suffix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
                below && on.is_none_or(|on| on == port)
            }
        }
    }
}

impl Proxy {
    /// Reads `[http://|https://][user:password@]host[:port]`.
    fn parse(url: &str) -> Result<Self, String> {
        // The URL may hold a password, so it is not repeated.
        let wrong = |why: &str| format!("HTTPS_PROXY is not understood: {why}; it looks like http://proxy.example:3128");
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            other => return Err(wrong(&format!("{other}:// proxies are not supported"))),
        };
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let (host, port) = match place.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => place.rsplit_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong("it names no host"));
        }
        let port = match port {
            Some(port) => port.parse().ok().filter(|&port| port != 0).ok_or_else(|| wrong("its port is no number"))?,
            None if tls => 443,
            None => 80,
        };
        let authorization = user.map(|user| {
            let encoded = base64::engine::general_purpose::STANDARD.encode(percent_decoded(user));
            SecretString::from(format!("Basic {encoded}"))
        });
        Ok(Self { host: host.to_owned(), port, tls, authorization })
    }

    /// Asks for a way to `host:port` on a connection to the proxy.
    ///
    /// # Errors
    /// The proxy's refusal.
    pub async fn connect(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin), host: &str, port: u16) -> io::Result<()> {
        let place = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(authorization) = &self.authorization {
            request.extend(["Proxy-Authorization: ", authorization.expose_secret(), "\r\n"]);
        }
        request.push_str("\r\n");
        let answered = async {
            stream.write_all(request.as_bytes()).await?;
            stream.flush().await?;
            // Byte by byte: what follows the answer is not ours to read. It is short, and comes once a connection.
            let mut answer = Vec::with_capacity(256);
            while !answer.ends_with(b"\r\n\r\n") {
                if answer.len() >= MAX_ANSWER {
                    return Err(io::Error::other("its answer is too long"));
                }
                answer.push(stream.read_u8().await?);
            }
            io::Result::Ok(answer)
        };
        let place = format!("the proxy {}:{}", self.host, self.port);
        let answer = tokio::time::timeout(ANSWER_DEADLINE, answered)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("{place} did not answer in time")))?
            .map_err(|error| io::Error::new(error.kind(), format!("{place} failed: {error}")))?;
        check(&answer).map_err(|why| io::Error::other(format!("{place} {why}")))
    }
}

/// Whether an answer grants the way.
fn check(answer: &[u8]) -> Result<(), String> {
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line: String = String::from_utf8_lossy(line).chars().filter(|character| !character.is_control()).take(100).collect();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).and_then(|status| status.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(407) => Err("asks for a user and a password: write them into HTTPS_PROXY".to_owned()),
        Some(_) => Err(format!("does not let the tunnel through: {line}")),
        None => Err("does not speak HTTP".to_owned()),
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(proxy: &str, without: &str) -> Result<Proxies, String> {
        Proxies::from_variables(&[("HTTPS_PROXY", proxy), ("no_proxy", without)].map(|(k, v)| (k.to_owned(), v.to_owned())).into())
    }

    #[test]
    fn urls_of_proxies_are_read() {
        for (url, host, port, tls) in [
            ("http://proxy.example:3128", "proxy.example", 3128, false),
            ("proxy.example", "proxy.example", 80, false),
            ("https://proxy.example/", "proxy.example", 443, true),
            ("HTTP://[fd00::1]:8080", "fd00::1", 8080, false),
            ("http://ada:p%40ss%3a@10.0.0.1:1", "10.0.0.1", 1, false),
        ] {
            let found = proxies(url, "").unwrap();
            let proxy = found.to("k.example", 443).unwrap();
            assert_eq!((proxy.host.as_str(), proxy.port, proxy.tls), (host, port, tls), "{url}");
        }
        for url in ["socks5://x:1", "http://", "http://x:0", "http://x:y", "http://a:secret@:1"] {
            let refused = proxies(url, "").unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(proxies(" ", "").unwrap().to("k.example", 443).is_none());
        let proxy = Proxy::parse("http://ada:p%40ss@x").unwrap();
        assert_eq!(proxy.authorization.as_ref().unwrap().expose_secret(), "Basic YWRhOnBAc3M=");
        assert!(!format!("{proxy:?}").contains("YWRh"));
    }

    #[test]
    fn what_no_proxy_names_is_reached_directly() {
        let found = proxies("http://p", "10.0.0.0/8,localhost,.corp.example,k.example:8443,203.0.113.7,").unwrap();
        for direct in
            [("10.1.2.3", 443), ("localhost", 1), ("a.corp.example", 443), ("corp.example", 443), ("K.example", 8443), ("203.0.113.7", 1)]
        {
            assert!(found.to(direct.0, direct.1).is_none(), "{direct:?}");
        }
        for through in [("11.0.0.1", 443), ("k.example", 443), ("xcorp.example", 443)] {
            assert!(found.to(through.0, through.1).is_some(), "{through:?}");
        }
        assert!(proxies("http://p", "*").unwrap().to("k.example", 443).is_none());
    }

    #[tokio::test]
    async fn a_proxy_is_asked_and_its_refusal_said() {
        let proxy = Proxy::parse("http://ada:pw@p:3128").unwrap();
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nVia: x\r\n\r\nREST", Ok(())),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Err("asks for a user")),
            ("HTTP/1.0 403 Forbidden\r\n\r\n", Err("does not let the tunnel through: HTTP/1.0 403 Forbidden")),
            ("SSH-2.0-x\r\n\r\n", Err("does not speak HTTP")),
            ("HTTP/1.1 200 OK\r\n", Err("failed")),
        ] {
            let (mut near, mut far) = tokio::io::duplex(1000);
            far.write_all(answer.as_bytes()).await.unwrap();
            far.shutdown().await.unwrap();
            let asked = proxy.connect(&mut near, "k.example", 443).await.map_err(|error| error.to_string());
            match expected {
                Ok(()) => {
                    asked.unwrap();
                    let mut rest = String::new();
                    near.read_to_string(&mut rest).await.unwrap();
                    assert_eq!(rest, "REST", "what follows stays");
                }
                Err(why) => assert!(asked.unwrap_err().contains(why), "{answer:?}"),
            }
            drop(near);
            let mut request = String::new();
            far.read_to_string(&mut request).await.unwrap();
            assert!(
                request.starts_with("CONNECT k.example:443 HTTP/1.1\r\nHost: k.example:443\r\nProxy-Authorization: Basic "),
                "{request}"
            );
        }
        let (mut near, mut far) = tokio::io::duplex(20_000);
        far.write_all(&[b'x'; MAX_ANSWER + 1]).await.unwrap();
        assert!(proxy.connect(&mut near, "k.example", 443).await.unwrap_err().to_string().contains("too long"));
    }
}
