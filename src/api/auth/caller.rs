//! The caller of a request: a principal, narrowed by what it proved itself with.

use std::time::Duration;

use super::secret::{Secret, SecretKind};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::domain::kubeconfig::ClusterRole;
use crate::domain::page::{MAX_LIMIT, PageRequest};
use crate::domain::user::{ApiToken, Principal, Role, User};
use crate::domain::{ApiTokenId, ProjectId, SessionId, Timestamp, UserId};
use crate::store::{self, Sql};

/// How a caller proved who it is; good for asking again later, and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The Unix socket.
    Socket,
    /// A session's secret, as its SHA-256.
    Session([u8; 32]),
    /// An API token's secret, as its SHA-256.
    Token([u8; 32]),
}

impl Proof {
    /// The proof that a secret is.
    pub fn of(secret: &Secret) -> Self {
        match secret.kind() {
            SecretKind::Session => Self::Session(secret.hash()),
            SecretKind::ApiToken => Self::Token(secret.hash()),
        }
    }
}

/// Who makes a request, and what they may do with the proof that they gave.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Principal,
    /// The user; absent on the Unix socket.
    pub user: Option<User>,
    /// The session, when one was the proof.
    pub session: Option<SessionId>,
    /// The API token, when one was the proof.
    pub token: Option<ApiTokenId>,
    /// The proof.
    pub proof: Proof,
    most: Role,
    only: Option<ProjectId>,
    use_is_news: bool,
}

impl Caller {
    /// The caller on the Unix socket.
    pub fn local() -> Self {
        Self {
            principal: Principal::local(),
            user: None,
            session: None,
            token: None,
            proof: Proof::Socket,
            most: Role::Admin,
            only: None,
            use_is_news: false,
        }
    }

    pub(super) fn of_session(user: User, session: SessionId, proof: Proof) -> Self {
        Self { session: Some(session), ..Self::of_user(user, proof) }
    }

    pub(super) fn of_token(user: User, token: &ApiToken, proof: Proof, now: Timestamp) -> Self {
        let use_is_news = token.last_used_at.is_none_or(|last| now.since(last) >= Duration::from_secs(60));
        Self { token: Some(token.id), most: token.role, only: token.project_id, use_is_news, ..Self::of_user(user, proof) }
    }

    fn of_user(user: User, proof: Proof) -> Self {
        let principal = Principal {
            name: user.name.clone(),
            user_id: Some(user.id),
            platform_admin: user.platform_admin,
            roles: user.roles.iter().map(|r| (r.project_id, r.role)).collect(),
        };
        Self { principal, user: Some(user), proof, ..Self::local() }
    }

    /// Notes the use of an API token, at most once a minute.
    pub(super) async fn touch(&self, state: &ApiState) -> Result<(), Problem> {
        if let Some(id) = self.token.filter(|_| self.use_is_news) {
            let noted = async {
                let mut tx = state.store.begin().await?;
                store::api_tokens::touch(&mut tx, id, state.ambient.now()).await?;
                tx.commit().await
            };
            match noted.await {
                // What only reads goes on though the disk is full.
                Ok(()) | Err(store::Error::DiskFull(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The name that events and records carry.
    pub fn name(&self) -> &str {
        &self.principal.name
    }

    /// The user's id; absent on the Unix socket.
    pub fn user_id(&self) -> Option<UserId> {
        self.principal.user_id
    }

    /// What tells this caller from every other, for idempotency and limits: the user's id, never a name.
    pub fn key(&self) -> String {
        self.principal.user_id.map_or_else(|| "root".to_owned(), |id| id.to_string())
    }

    /// Whether the platform itself may be administered.
    pub fn platform_admin(&self) -> bool {
        self.principal.platform_admin && self.most == Role::Admin && self.only.is_none()
    }

    /// The role in a project; `None` where the project is not to be seen.
    pub fn role_in(&self, project: ProjectId) -> Option<Role> {
        if self.only.is_some_and(|only| only != project) {
            return None;
        }
        self.principal.role_in(project).map(|role| role.min(self.most))
    }

    /// The projects that may be seen; `None`: every one.
    pub fn visible(&self) -> Option<Vec<ProjectId>> {
        match (self.only, self.principal.platform_admin) {
            (Some(only), _) => Some(self.role_in(only).map(|_| only).into_iter().collect()),
            (None, true) => None,
            (None, false) => Some(self.principal.roles.iter().map(|(id, _)| *id).collect()),
        }
    }

    /// Whether things of no project (the platform's own events and jobs) may be seen.
    pub fn sees_platform(&self) -> bool {
        self.platform_admin()
    }

    /// The projects whose events and jobs may be seen; `None`: every one, and the platform's own. Who sees all projects and
    /// does not administer the platform (a lesser token of an administrator) gets the projects by their ids.
    pub async fn sees_of_projects(&self, sql: &mut dyn Sql) -> store::Result<Option<Vec<ProjectId>>> {
        if self.sees_platform() {
            return Ok(None);
        }
        if let Some(projects) = self.visible() {
            return Ok(Some(projects));
        }
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = store::projects::list(sql, None, &PageRequest { limit: MAX_LIMIT, after }).await?;
            ids.extend(page.items.iter().map(|project| project.id));
            after = page.next;
            if after.is_none() {
                return Ok(Some(ids));
            }
        }
    }

    /// Refuses an API token, which is no way to manage what it stands for.
    pub fn refuse_token(&self, detail: &str) -> Result<(), Problem> {
        if self.token.is_some() { Err(Problem::forbidden(detail)) } else { Ok(()) }
    }

    /// The roles by project that were given.
    pub fn roles(&self) -> &[(ProjectId, Role)] {
        &self.principal.roles
    }

    /// The most that this proof may do anywhere.
    pub fn most(&self) -> Role {
        self.most
    }

    /// The one project that this proof is good for.
    pub fn only(&self) -> Option<ProjectId> {
        self.only
    }

    /// Refuses with 404 who does not see the project (`what` is not there), and with 403 who has less than `role` there.
    pub fn require(&self, project: ProjectId, role: Role, what: &str, doing: &str) -> Result<Role, Problem> {
        let has = self.role_in(project).ok_or_else(|| Problem::not_found(what))?;
        if has >= role {
            return Ok(has);
        }
        let (has, needed) = (has.as_str(), role.as_str());
        Err(Problem::forbidden(format!("{doing} needs the role {needed} in the project; you have {has}")))
    }

    /// Refuses who does not administer the platform.
    pub fn require_platform_admin(&self, doing: &str) -> Result<(), Problem> {
        if self.platform_admin() {
            return Ok(());
        }
        Err(Problem::forbidden(format!("{doing} is for platform administrators")))
    }
}

/// The most that a role gets inside a cluster.
pub fn cluster_role_of(role: Role) -> ClusterRole {
    match role {
        Role::Viewer => ClusterRole::View,
        Role::Member => ClusterRole::Edit,
        Role::Admin => ClusterRole::Admin,
    }
}
