//! Whether a machine knows the secret of the token that it names.

use subtle::ConstantTimeEq as _;

use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::domain::JoinTokenId;
use crate::domain::join::{self, JoinToken};
use crate::domain::work::Refusal;
use crate::store;

/// The token, if the secret is its own. Whether it is good yet is for the caller to ask.
///
/// # Errors
/// One answer for a token that is not there and for a secret that is wrong.
pub(super) async fn token(state: &ApiState, id: JoinTokenId, secret: &str, source: &str) -> Result<JoinToken, Problem> {
    let (what, now) = (id.to_string(), state.ambient.now());
    state.joins.not_too_often(&what, source, now)?;
    let found = store::join_tokens::find(&mut *state.store.read().await?, id).await?;
    let (token, hash) = found.map_or((None, vec![0; 32]), |(token, hash)| (Some(token), hash));
    let matches = bool::from(hash.as_slice().ct_eq(&join::secret_hash(secret)));
    let Some(token) = token.filter(|_| matches) else {
        state.joins.failed(&what, source, now);
        return Err(unknown());
    };
    state.joins.succeeded(&what, source);
    Ok(token)
}

/// What is said of a token that is not known.
pub(super) fn unknown() -> Problem {
    Problem::refused(Refusal::TokenUnknown, "this join token is not known here: make another with `kubebyon join-token create CLUSTER`")
}
