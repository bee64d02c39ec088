//! Join tokens made.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use zeroize::Zeroizing;

use super::{CreateJoinToken, CreatedJoinToken};
use crate::api::auth::Caller;
use crate::api::extract::{JsonBody, Path};
use crate::api::join::Way;
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::api::v1::clusters;
use crate::domain::join::{ARCHITECTURES, DEFAULT_TTL, DEFAULT_USES, JoinToken, MAX_TTL, MAX_USES, MIN_TTL, TokenContent, secret_hash};
use crate::domain::user::Role;
use crate::domain::work::Refusal;
use crate::domain::{Cluster, ClusterId, JoinTokenId};
use crate::store;

/// So many tokens that are good at once, at most, a cluster has.
const MOST: usize = 200;

/// Make a join token
///
/// For members and administrators of the project. Machines become nodes with it: the answer has the one line to run on them. A use counts
/// once a machine. A configured certificate that machines could not check, and a cluster that takes no machines, are refused with what
/// to do.
#[utoipa::path(post, path = "/api/v1/clusters/{id}/join-tokens", tag = "nodes", operation_id = "create_join_token",
    request_body = CreateJoinToken,
    params(("id" = ClusterId, Path, description = "The cluster's id")),
    responses((status = 201, description = "The token, shown this once", body = CreatedJoinToken)))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    body: JsonBody<CreateJoinToken>,
) -> Result<(StatusCode, Json<CreatedJoinToken>), Problem> {
    let cluster = clusters::visible(&mut *state.store.read().await?, &caller, id).await?;
    caller.require(cluster.project_id, Role::Member, "cluster", "making a join token")?;
    let (ttl, uses) = bounds(&body.value)?;
    takes_nodes(&cluster)?;
    let way = Way::current(&state).await?;
    let random: Zeroizing<[u8; 32]> = Zeroizing::new(state.ambient.random());
    let secret = Zeroizing::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random.as_slice()));
    let now = state.ambient.now();
    let record = JoinToken {
        id: JoinTokenId::generate(&state.ambient),
        cluster_id: id,
        owner: caller.name().to_owned(),
        created_at: now,
        expires_at: now.plus(ttl),
        uses,
        used: 0,
        revoked_at: None,
    };
    let mut tx = state.store.begin().await?;
    takes_nodes(&clusters::visible(tx.sql(), &caller, id).await?)?;
    let good = store::join_tokens::list(tx.sql(), id).await?.into_iter().filter(|token| token.check(id, now).is_ok()).count();
    if good >= MOST {
        let detail = format!("the cluster has {good} join tokens that are good; revoke some first, or use one of them");
        return Err(Problem::new(Kind::Conflict, detail));
    }
    store::join_tokens::insert(&mut tx, &record, &secret_hash(&secret)).await?;
    let message =
        format!("a join token for {uses} {} was made, good until {}", if uses == 1 { "machine" } else { "machines" }, record.expires_at);
    clusters::tell(&mut tx, &state.ambient, &caller, &cluster, "JoinTokenCreated", message).await?;
    tx.commit().await?;
    let content = TokenContent {
        server: way.server.clone(),
        cluster: cluster.label.clone(),
        id: record.id,
        secret: secret.to_string(),
        trust: way.trust.trust.clone(),
    };
    let token = content.encode();
    let created = CreatedJoinToken {
        command: way.line(true, &token),
        cloud_init: cloud_init(&way, &token),
        warnings: warnings(&state, &cluster).await?,
        record,
        token,
    };
    Ok((StatusCode::CREATED, Json(created)))
}

fn bounds(request: &CreateJoinToken) -> Result<(Duration, u32), Problem> {
    let ttl = request.ttl_seconds.unwrap_or(DEFAULT_TTL.as_secs());
    let (least, most) = (MIN_TTL.as_secs(), MAX_TTL.as_secs());
    if !(least..=most).contains(&ttl) {
        let message = format!("{ttl} seconds are out of range; give {}m to {}d ({least} to {most} seconds)", least / 60, most / 86_400);
        return Err(Problem::invalid("ttl_seconds", message));
    }
    let uses = request.uses.unwrap_or(DEFAULT_USES.into());
    let fits = u32::try_from(uses).ok().filter(|uses| (1..=MAX_USES).contains(uses));
    let uses = fits.ok_or_else(|| Problem::invalid("uses", format!("{uses} uses are out of range; give 1 to {MAX_USES}")))?;
    Ok((Duration::from_secs(ttl), uses))
}

/// Refuses where nothing can join.
fn takes_nodes(cluster: &Cluster) -> Result<(), Problem> {
    let name = &cluster.name;
    if cluster.deleted_at.is_some() {
        return Err(Problem::refused(Refusal::ClusterDeleting, format!("cluster {name} is being deleted: nothing joins it any more")));
    }
    if !cluster.spec.engine.takes_nodes() {
        let engine = cluster.spec.engine.as_str();
        let why = format!(
            "machines cannot join cluster {name}: its engine, {engine}, takes its nodes from the host cluster. Create a cluster with the \
             engine local or hosted"
        );
        return Err(Problem::refused(Refusal::TakesNoNodes, why));
    }
    Ok(())
}

/// User data that joins with a token: it stands in a file that is gone with the next boot, and in no process's arguments.
fn cloud_init(way: &Way, token: &str) -> String {
    const FILE: &str = "/run/kubebyon-join-token";
    let line = way.line(false, &format!("--token-file {FILE}"));
    format!(
        "#cloud-config\nwrite_files:\n  - path: {FILE}\n    permissions: '0600'\n    content: {token}\nruncmd:\n  - |\n    {line}\n    rm -f {FILE}\n"
    )
}

/// What keeps machines from joining as things stand.
async fn warnings(state: &ApiState, cluster: &Cluster) -> Result<Vec<String>, Problem> {
    let version = cluster.status.kubernetes_version.unwrap_or(cluster.spec.kubernetes_version);
    let mut missing = Vec::new();
    for architecture in ARCHITECTURES {
        let set = state.ports.node_files.set(version, architecture).await;
        match set.map_err(|cause| Problem::internal("looking for the programs of nodes", &cause))? {
            // That machines of one kind can join is how it should be; what others lack they are told.
            Ok(_) => return Ok(Vec::new()),
            Err(what) => missing.push(what),
        }
    }
    Ok(missing)
}
