//! What became of a membership: told to the machine that proves its kubelet's key.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384};
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};

use crate::api::auth::Peer;
use crate::api::extract::JsonBody;
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::sessions::source;
use crate::domain::join::{FateAnswer, FateRequest, fate_statement};
use crate::domain::node::Fate;
use crate::store;
use crate::store::nodes::Membership;

/// How far a machine's clock may be off.
const CLOCK: Duration = Duration::from_secs(600);
/// The longest signature, in characters of base64: ASN.1 of P-384 has at most 104 bytes.
const SIGNATURE: usize = 200;
/// The base point of P-256 (SEC 2): whoever has no key here is checked against this one, in the same time, and believed no more.
const NOBODY: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d,
    0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb,
    0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
];

/// Ask what became of a node
///
/// For a machine whose tunnel is refused. Not signed in: the signature by the kubelet's key is the proof; a wrong one, and a node that is
/// not known (any more), get the same answer.
#[utoipa::path(post, path = "/join/v1/fate", tag = "join", operation_id = "ask_fate", request_body = FateRequest, security(()),
    responses((status = 200, description = "What became of it", body = FateAnswer)),
    extensions(("x-problems" = json!([429]))))]
pub async fn fate(
    State(state): State<ApiState>,
    peer: Option<Extension<Peer>>,
    body: JsonBody<FateRequest>,
) -> Result<Json<FateAnswer>, Problem> {
    let FateRequest { node, at, signature } = body.value;
    let (what, source, now) = (node.to_string(), source(peer.as_deref()), state.ambient.now());
    if now.since(at).max(at.since(now)) > CLOCK {
        let message = format!("{at} is more than {} minutes off; it is {now} here: set the machine's clock", CLOCK.as_secs() / 60);
        return Err(Problem::invalid("at", message));
    }
    let signature = STANDARD.decode(signature.get(..SIGNATURE).unwrap_or(&signature));
    let signature = signature.map_err(|_| Problem::invalid("signature", "give the ASN.1 of an ECDSA signature in base64"))?;
    state.joins.not_too_often(&what, &source, now)?;
    let known = store::nodes::membership(&mut *state.store.read().await?, node).await?;
    let statement = fate_statement(node, at);
    let proven = match &known {
        Some(membership) if !membership.public_keys.is_empty() => {
            membership.public_keys.iter().any(|key| signed_by(key, &statement, &signature))
        }
        _ => {
            let _ = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, NOBODY).verify(&statement, &signature);
            false
        }
    };
    let Some(membership) = known.filter(|_| proven) else {
        state.joins.failed(&what, &source, now);
        return Ok(Json(unknown()));
    };
    state.joins.succeeded(&what, &source);
    Ok(Json(answer(&state, &membership)))
}

/// Whether that key (DER of its SubjectPublicKeyInfo) signed the statement: ECDSA P-256 with SHA-256, or P-384 with SHA-384.
fn signed_by(key: &[u8], statement: &[u8], signature: &[u8]) -> bool {
    let Ok((rest, parsed)) = SubjectPublicKeyInfo::from_der(key) else { return false };
    if !rest.is_empty() || parsed.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY {
        return false;
    }
    let curve = parsed.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    let algorithm: &dyn VerificationAlgorithm = match curve {
        Some(curve) if curve == OID_EC_P256 => &ECDSA_P256_SHA256_ASN1,
        Some(curve) if curve == OID_NIST_EC_P384 => &ECDSA_P384_SHA384_ASN1,
        _ => return false,
    };
    UnparsedPublicKey::new(algorithm, &parsed.subject_public_key.data).verify(statement, signature).is_ok()
}

fn unknown() -> FateAnswer {
    let message = "nothing is known of this node here (any more): run `kubebyon leave` to clean up, and join again with a new token if it \
                   is to come back";
    FateAnswer { fate: Fate::Unknown, message: message.to_owned(), tunnel_endpoints: Vec::new() }
}

fn answer(state: &ApiState, membership: &Membership) -> FateAnswer {
    let Membership { name: node, cluster, fate, .. } = membership;
    let ended =
        |what: String| format!("{what}; run `kubebyon leave` here to clean up, and join again with a new token if it is to come back");
    let message = match fate {
        Fate::Member => format!("node {node} is a node of cluster {cluster}"),
        Fate::Removed => ended(format!("node {node} was removed from cluster {cluster} on the platform")),
        Fate::Left => ended(format!("node {node} has left cluster {cluster}")),
        Fate::Replaced => ended(format!("another machine took the place of node {node} in cluster {cluster}")),
        Fate::ClusterDeleted => format!("cluster {cluster} was deleted; run `kubebyon leave` here to clean up"),
        Fate::Unknown => return unknown(),
    };
    let tunnel_endpoints = if *fate == Fate::Member { state.ports.addresses.current().tunnel_endpoints() } else { Vec::new() };
    FateAnswer { fate: *fate, message, tunnel_endpoints }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};

    use super::*;

    #[test]
    fn both_curves_are_believed_and_nothing_else_is() {
        for (kind, signing) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_ASN1_SIGNING),
            (&rcgen::PKCS_ECDSA_P384_SHA384, &ECDSA_P384_SHA384_ASN1_SIGNING),
        ] {
            let key = rcgen::KeyPair::generate_for(kind).unwrap();
            let public = rcgen::PublicKeyData::subject_public_key_info(&key);
            let random = SystemRandom::new();
            let signer = EcdsaKeyPair::from_pkcs8(signing, &key.serialize_der(), &random).unwrap();
            let signature = signer.sign(&random, b"statement").unwrap();
            assert!(signed_by(&public, b"statement", signature.as_ref()));
            assert!(!signed_by(&public, b"another", signature.as_ref()));
            assert!(!signed_by(&public, b"statement", &signature.as_ref()[1..]));
            for end in 0..public.len() {
                assert!(!signed_by(&public[..end], b"statement", signature.as_ref()), "a key that is cut at {end}");
            }
        }
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        assert!(!signed_by(&rcgen::PublicKeyData::subject_public_key_info(&other), b"statement", &[0; 64]));
    }

    #[test]
    fn the_key_of_nobody_is_a_key() {
        // A point that is none would be refused before any arithmetic, in less time.
        let error = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, NOBODY).verify(b"x", &[0x30, 6, 2, 1, 1, 2, 1, 1]);
        assert!(error.is_err());
        assert_eq!(NOBODY[0], 4);
    }
}
