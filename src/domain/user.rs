//! People and programs that call the API, and what they may do.

use serde::{Deserialize, Serialize};

use super::{ApiTokenId, ProjectId, Timestamp, UserId};

/// What somebody may do in a project; each role holds the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything of the project, and gets `view` in its clusters.
    Viewer,
    /// Also gets `edit` in its clusters.
    Member,
    /// Also creates, changes and deletes clusters, and gets `admin` in them.
    Admin,
}

impl Role {
    /// The word for it, as in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Viewer, Self::Member, Self::Admin].into_iter().find(|r| r.as_str() == text).ok_or(())
    }
}

/// A local user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct User {
    /// Its permanent identifier.
    pub id: UserId,
    /// Its name for sign-in.
    pub name: String,
    /// Whether it administers the platform itself: every project, users, settings.
    pub platform_admin: bool,
    /// Whether it is barred from signing in.
    pub disabled: bool,
    /// Its roles by project.
    pub roles: Vec<ProjectRole>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A role in one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProjectRole {
    /// The project's identifier.
    pub project_id: ProjectId,
    /// The project's name.
    pub project: String,
    /// The role there.
    pub role: Role,
}

/// An API token as it is listed; its secret is shown once, when it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ApiToken {
    /// Its permanent identifier.
    pub id: ApiTokenId,
    /// The user it acts for.
    pub user_id: UserId,
    /// What it is for, in its owner's words.
    pub name: String,
    /// The most it may do: no more than its user may.
    pub role: Role,
    /// The one project it is good for; absent: all of its user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// When it was last used, within a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

/// Who makes a request, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name that events and records carry: `root` on the socket, else the user's.
    pub name: String,
    /// The user; absent on the Unix socket.
    pub user_id: Option<UserId>,
    /// Whether the platform itself may be administered.
    pub platform_admin: bool,
    /// Roles by project; a platform admin is admin in every one.
    pub roles: Vec<(ProjectId, Role)>,
}

impl Principal {
    /// The caller on the Unix socket: root, or the daemon's own uid.
    pub fn local() -> Self {
        Self { name: "root".into(), user_id: None, platform_admin: true, roles: Vec::new() }
    }

    /// The role in a project; `None` where the project is not to be seen.
    pub fn role_in(&self, project: ProjectId) -> Option<Role> {
        if self.platform_admin {
            return Some(Role::Admin);
        }
        self.roles.iter().find(|(id, _)| *id == project).map(|(_, role)| *role)
    }
}
