//! Who calls: the Unix socket, a session (bearer or cookie), or an API token; and what they may do.
//!
//! A secret is looked up by its SHA-256, at every request: a user who was barred, a session that ended and a token that
//! was removed are refused at once. A cookie works only from the platform's own pages.

mod caller;
mod cross_site;
mod first_admin;
mod passwords;
mod secret;
mod throttle;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

pub use caller::{Caller, Proof, cluster_role_of};
pub use cross_site::refuse_cross_site;
pub use first_admin::ensure_first_admin;
pub use passwords::{MAX_PASSWORD, MIN_PASSWORD, Passwords, check_strength};
pub use secret::{Secret, SecretKind};
pub use throttle::Throttle;

use super::problem::{Kind, Problem};
use super::state::ApiState;
use crate::store;

/// The name of the session cookie on TLS (`__Host-`: this host alone, whole path, secure; RFC 6265bis).
pub const COOKIE: &str = "__Host-kubebyon";
/// Its name where `session.cookie_secure` is off: browsers take `__Host-` only with `Secure`.
pub const COOKIE_PLAIN: &str = "kubebyon";

/// The name of the session cookie.
pub const fn cookie_name(secure: bool) -> &'static str {
    if secure { COOKIE } else { COOKIE_PLAIN }
}

/// Where a request came from; the listener puts it into the request's extensions. Absent counts as an unknown remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The Unix socket.
    Local {
        /// The uid of the process on the other side (`SO_PEERCRED`).
        uid: u32,
    },
    /// The network.
    Remote {
        /// The address of the other side.
        address: std::net::SocketAddr,
        /// Whether the connection is TLS (or a trusted proxy says that it was).
        tls: bool,
    },
}

impl Peer {
    /// What throttling knows the other side by.
    pub fn source(self) -> String {
        match self {
            Self::Local { uid } => format!("uid {uid}"),
            Self::Remote { address, .. } => address.ip().to_string(),
        }
    }

    /// Whether this is root or the daemon's own uid on the Unix socket, who need no credential.
    pub fn is_trusted(self) -> bool {
        matches!(self, Self::Local { uid } if uid == 0 || uid == nix::unistd::geteuid().as_raw())
    }
}

/// Where a request's secret stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Bearer,
    Cookie,
}

impl FromRequestParts<ApiState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Some((secret, carrier)) = presented(&parts.headers, cookie_name(state.options.cookie_secure))? else {
            return match parts.extensions.get::<Peer>() {
                Some(peer) if peer.is_trusted() => Ok(Self::local()),
                _ => Err(unauthenticated("this needs a session or an API token: send Authorization: Bearer, or sign in")),
            };
        };
        if carrier == Carrier::Cookie && !parts.method.is_safe() {
            refuse_cross_site(&parts.headers, true)?;
        }
        let caller = resolve(state, &Proof::of(&secret)).await?.ok_or_else(ended)?;
        caller.touch(state).await?;
        Ok(caller)
    }
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(Kind::Unauthenticated, detail)
}

fn ended() -> Problem {
    unauthenticated("this session or token is unknown or has ended; sign in again, or make a new token")
}

/// The caller that a proof stands for, as of this moment; `None` when it is good no longer.
pub async fn resolve(state: &ApiState, proof: &Proof) -> Result<Option<Caller>, Problem> {
    let now = state.ambient.now();
    let mut sql = state.store.read().await?;
    match proof {
        Proof::Socket => Ok(Some(Caller::local())),
        Proof::Session(hash) => {
            let Some((session, user)) = store::sessions::find(&mut *sql, hash, now).await? else { return Ok(None) };
            let user = store::users::find(&mut *sql, user).await?.filter(|user| !user.disabled);
            Ok(user.map(|user| Caller::of_session(user, session, proof.clone())))
        }
        Proof::Token(hash) => {
            let Some(token) = store::api_tokens::find(&mut *sql, hash, now).await? else { return Ok(None) };
            let user = store::users::find(&mut *sql, token.user_id).await?.filter(|user| !user.disabled);
            Ok(user.map(|user| Caller::of_token(user, &token, proof.clone(), now)))
        }
    }
}

/// The secret that a request carries: `Authorization: Bearer` before the cookie.
///
/// Of cookies the one name alone counts. Another host of the same domain can add a second cookie of a plain name, and nothing
/// tells which of the two is ours: several are refused.
fn presented(headers: &HeaderMap, cookie: &str) -> Result<Option<(Secret, Carrier)>, Problem> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let secret = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, secret)| Secret::parse(secret.trim()))
            .ok_or_else(|| unauthenticated("the Authorization header must be: Bearer, a space, and a session or API token"))?;
        return Ok(Some((secret, Carrier::Bearer)));
    }
    let mut cookies = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == cookie);
    let (first, second) = (cookies.next(), cookies.next());
    if second.is_some() {
        return Err(unauthenticated(&format!("several cookies are named {cookie}: remove the site's cookies and sign in again")));
    }
    Ok(first.and_then(|(_, value)| Secret::parse(value)).map(|secret| (secret, Carrier::Cookie)))
}
