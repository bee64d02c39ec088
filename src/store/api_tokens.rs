//! API tokens; the secret is stored as its SHA-256.

use std::time::Duration;

use super::{Change, Result, Row, Sql, Tx};
use crate::domain::user::{ApiToken, Role};
use crate::domain::{Ambient, ApiTokenId, ProjectId, Timestamp, UserId};

/// How exact the time of the last use is.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select t.id, t.user_id, t.name, t.role, t.project_id, t.created_at, t.expires_at, t.last_used_at from api_tokens t ",
            $rest
        )
    };
}

/// A token that is to be made.
#[derive(Debug, Clone)]
pub struct NewApiToken {
    /// The user it acts for.
    pub user_id: UserId,
    /// What it is for.
    pub name: String,
    /// The most it may do.
    pub role: Role,
    /// The one project it is good for.
    pub project_id: Option<ProjectId>,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Records a token.
pub async fn create(tx: &mut Tx, ambient: &Ambient, new: NewApiToken, secret_hash: &[u8; 32]) -> Result<ApiToken> {
    let token = ApiToken {
        id: ApiTokenId::generate(ambient),
        user_id: new.user_id,
        name: new.name,
        role: new.role,
        project_id: new.project_id,
        created_at: ambient.now(),
        expires_at: new.expires_at,
        last_used_at: None,
    };
    let insert = "insert into api_tokens (id, user_id, name, role, project_id, secret_hash, created_at, expires_at) \
                  values ($1, $2, $3, $4, $5, $6, $7, $8)";
    let values = vec![
        token.id.into(),
        token.user_id.into(),
        (&token.name).into(),
        token.role.as_str().into(),
        token.project_id.into(),
        secret_hash.to_vec().into(),
        token.created_at.into(),
        token.expires_at.into(),
    ];
    tx.sql().execute(insert, values).await?;
    tx.note(Change::Access);
    Ok(token)
}

/// The token whose secret has that hash, when it has not ended by `now` and its user is not barred.
pub async fn find(sql: &mut dyn Sql, secret_hash: &[u8; 32], now: Timestamp) -> Result<Option<ApiToken>> {
    let select = select!("join users u on u.id = t.user_id where t.secret_hash = $1 and t.expires_at > $2 and not u.disabled");
    let mut rows = sql.query(select, vec![secret_hash.to_vec().into(), now.into()]).await?;
    rows.pop().map(read).transpose()
}

/// The tokens of a user (`None`: of everybody), newest first.
pub async fn list(sql: &mut dyn Sql, user: Option<UserId>) -> Result<Vec<ApiToken>> {
    let rows = match user {
        Some(user) => sql.query(select!("where t.user_id = $1 order by t.id desc"), vec![user.into()]).await?,
        None => sql.query(select!("order by t.id desc"), Vec::new()).await?,
    };
    rows.into_iter().map(read).collect()
}

/// The token of that id.
pub async fn find_by_id(sql: &mut dyn Sql, id: ApiTokenId) -> Result<Option<ApiToken>> {
    let mut rows = sql.query(select!("where t.id = $1"), vec![id.into()]).await?;
    rows.pop().map(read).transpose()
}

/// Notes a use; at most one write a minute. To keep a request from waiting for the writer, call it only when the
/// token's `last_used_at` is a minute old.
pub async fn touch(tx: &mut Tx, id: ApiTokenId, now: Timestamp) -> Result<()> {
    // A time that lies ahead was written under a clock that has since been set back.
    let update =
        "update api_tokens set last_used_at = $2 where id = $1 and (last_used_at is null or last_used_at <= $3 or last_used_at > $2)";
    tx.sql().execute(update, vec![id.into(), now.into(), now.minus(TOUCH_EVERY).into()]).await?;
    Ok(())
}

/// Removes a token.
pub async fn remove(tx: &mut Tx, id: ApiTokenId) -> Result<bool> {
    let removed = tx.sql().execute("delete from api_tokens where id = $1", vec![id.into()]).await?;
    if removed > 0 {
        tx.note(Change::Access);
    }
    Ok(removed > 0)
}

fn read(mut row: Row) -> Result<ApiToken> {
    Ok(ApiToken {
        id: row.take(0)?,
        user_id: row.take(1)?,
        name: row.take(2)?,
        role: row.take(3)?,
        project_id: row.take(4)?,
        created_at: row.take(5)?,
        expires_at: row.take(6)?,
        last_used_at: row.take(7)?,
    })
}
