//! Which groups may do what: the default bindings of every cluster, and bindings for one namespace.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole as RbacClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, RoleRef, Subject};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{EngineError, FIELD_MANAGER, failed};
use crate::domain::kubeconfig::ClusterRole;
use crate::pki::leaves::KUBELET_CLIENT_USER;

/// The ClusterRole that lets its holders see nodes, which `view` and `edit` do not.
const READ_NODES: &str = "kubebyon:read-nodes";

/// How long the controller-manager may take to aggregate the default ClusterRoles.
const AGGREGATED_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

/// Binds the default roles as [`bind_default_roles`] does, and waits until the roles they lead to have rules.
pub async fn bootstrap(client: &Client) -> Result<(), EngineError> {
    bind_default_roles(client).await?;
    aggregated(&Api::all(client.clone())).await
}

/// Gives the platform's groups their roles, and the API server's kubelet client its own. Where all of it stands as it should, nothing is
/// written; what was changed or deleted is put back.
pub async fn bind_default_roles(client: &Client) -> Result<(), EngineError> {
    let roles = Api::<RbacClusterRole>::all(client.clone());
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    let read = read_nodes();
    if !stands(&roles, &read, |there| there.rules == read.rules).await? {
        apply(&roles, &read).await?;
    }
    for binding in default_bindings() {
        ensure_cluster_role_binding(&bindings, &binding).await?;
    }
    Ok(())
}

/// Waits until the controller-manager has filled `view` and `edit`, which a new cluster has without rules: bound to them so early, nobody
/// could do anything.
async fn aggregated(roles: &Api<RbacClusterRole>) -> Result<(), EngineError> {
    let deadline = tokio::time::Instant::now() + AGGREGATED_WITHIN;
    for name in ["view", "edit", "admin"] {
        loop {
            let found = roles.get_opt(name).await.map_err(|e| failed(format!("ClusterRole {name}"), e))?;
            if found.is_some_and(|role| role.rules.is_some_and(|rules| !rules.is_empty())) {
                break;
            }
            if tokio::time::Instant::now() > deadline {
                let why = format!("ClusterRole {name} has no rules after {AGGREGATED_WITHIN:?}: is the controller-manager well?");
                return Err(EngineError::Retry(anyhow::anyhow!(why)));
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// Binds a role in one namespace for the group `kubebyon:<role>s:<namespace>`.
pub async fn bind_namespace_role(client: &Client, role: ClusterRole, namespace: &str) -> Result<(), EngineError> {
    require_namespace(client, namespace).await?;
    let subject = group(&role.group(Some(namespace)));
    ensure_role_binding(client, &role_binding(&role.group(None), namespace, role.as_str(), subject)).await
}

/// Refuses a namespace that is not there or is going away, with the command that makes it.
pub(super) async fn require_namespace(client: &Client, namespace: &str) -> Result<(), EngineError> {
    let found = Api::<Namespace>::all(client.clone()).get_opt(namespace).await;
    match found.map_err(|e| failed(format!("namespace {namespace}"), e))? {
        None => Err(EngineError::Fatal(anyhow::anyhow!(
            "namespace {namespace} does not exist in this cluster; create it first: kubectl create namespace {namespace}"
        ))),
        Some(found) if found.metadata.deletion_timestamp.is_some() => Err(EngineError::Fatal(anyhow::anyhow!(
            "namespace {namespace} is being deleted; wait until it is gone and create it again: kubectl create namespace {namespace}"
        ))),
        Some(_) => Ok(()),
    }
}

/// The name of the ClusterRole that a role means: in all namespaces an admin owns the cluster, in one namespace what is in it.
pub(super) fn cluster_role_name(role: ClusterRole, everywhere: bool) -> &'static str {
    match role {
        ClusterRole::Admin if everywhere => "cluster-admin",
        other => other.as_str(),
    }
}

/// Brings a ClusterRoleBinding to what it should be.
pub(super) async fn ensure_cluster_role_binding(api: &Api<ClusterRoleBinding>, wanted: &ClusterRoleBinding) -> Result<(), EngineError> {
    let same = |there: &ClusterRoleBinding| there.role_ref == wanted.role_ref && there.subjects == wanted.subjects;
    if stands(api, wanted, same).await? {
        return Ok(());
    }
    let name = name_of(wanted);
    // A binding's role cannot be changed, only the binding made anew.
    let there = api.get_opt(name).await.map_err(|e| failed(format!("ClusterRoleBinding {name}"), e))?;
    if there.is_some_and(|t| t.role_ref != wanted.role_ref) {
        remove(api, name).await?;
    }
    apply(api, wanted).await
}

/// Brings a RoleBinding to what it should be.
pub(super) async fn ensure_role_binding(client: &Client, wanted: &RoleBinding) -> Result<(), EngineError> {
    let api = namespaced::<RoleBinding>(client, wanted);
    let same = |there: &RoleBinding| there.role_ref == wanted.role_ref && there.subjects == wanted.subjects;
    if stands(&api, wanted, same).await? {
        return Ok(());
    }
    let name = name_of(wanted);
    let there = api.get_opt(name).await.map_err(|e| failed(format!("RoleBinding {name}"), e))?;
    if there.is_some_and(|t| t.role_ref != wanted.role_ref) {
        remove(&api, name).await?;
    }
    apply(&api, wanted).await
}

/// A ClusterRoleBinding of one subject.
pub(super) fn cluster_role_binding(name: &str, role: &str, subject: Subject) -> ClusterRoleBinding {
    ClusterRoleBinding { metadata: metadata(name, None), role_ref: role_ref(role), subjects: Some(vec![subject]) }
}

/// A RoleBinding of one subject to a ClusterRole.
pub(super) fn role_binding(name: &str, namespace: &str, role: &str, subject: Subject) -> RoleBinding {
    RoleBinding { metadata: metadata(name, Some(namespace)), role_ref: role_ref(role), subjects: Some(vec![subject]) }
}

/// Metadata of an object that the platform looks after.
pub(super) fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some([("app.kubernetes.io/managed-by".to_owned(), FIELD_MANAGER.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

fn default_bindings() -> Vec<ClusterRoleBinding> {
    let of_role = |role: ClusterRole| {
        let name = role.group(None);
        cluster_role_binding(&name, cluster_role_name(role, true), group(&name))
    };
    let mut read_nodes = cluster_role_binding(READ_NODES, READ_NODES, group(&ClusterRole::View.group(None)));
    read_nodes.subjects.get_or_insert_default().push(group(&ClusterRole::Edit.group(None)));
    vec![
        of_role(ClusterRole::Admin),
        of_role(ClusterRole::Edit),
        of_role(ClusterRole::View),
        read_nodes,
        cluster_role_binding(KUBELET_CLIENT_USER, "system:kubelet-api-admin", subject("User", KUBELET_CLIENT_USER)),
    ]
}

fn read_nodes() -> RbacClusterRole {
    let rule = |group: &str| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec!["nodes".to_owned()]),
        verbs: ["get", "list", "watch"].map(str::to_owned).into(),
        ..PolicyRule::default()
    };
    RbacClusterRole { metadata: metadata(READ_NODES, None), rules: Some(vec![rule(""), rule("metrics.k8s.io")]), aggregation_rule: None }
}

fn role_ref(role: &str) -> RoleRef {
    RoleRef { api_group: "rbac.authorization.k8s.io".to_owned(), kind: "ClusterRole".to_owned(), name: role.to_owned() }
}

fn group(name: &str) -> Subject {
    subject("Group", name)
}

fn subject(kind: &str, name: &str) -> Subject {
    Subject { api_group: Some("rbac.authorization.k8s.io".to_owned()), kind: kind.to_owned(), name: name.to_owned(), namespace: None }
}

fn namespaced<K>(client: &Client, object: &K) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let namespace = object.meta().namespace.as_deref().expect("the platform's namespaced objects are made with their namespace");
    Api::namespaced(client.clone(), namespace)
}

fn name_of<K: Resource>(object: &K) -> &str {
    object.meta().name.as_deref().expect("the platform's objects are made with their name")
}

async fn stands<K>(api: &Api<K>, wanted: &K, same: impl FnOnce(&K) -> bool) -> Result<bool, EngineError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = name_of(wanted);
    let there = api.get_opt(name).await.map_err(|e| failed(format!("{} {name}", K::kind(&())), e))?;
    Ok(there.is_some_and(|there| there.meta().labels == wanted.meta().labels && same(&there)))
}

async fn apply<K>(api: &Api<K>, wanted: &K) -> Result<(), EngineError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Serialize,
{
    let name = name_of(wanted);
    let forced = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &forced, &Patch::Apply(wanted)).await.map(|_| ()).map_err(|e| failed(format!("{} {name}", K::kind(&())), e))
}

async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), EngineError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(error) if super::is_not_found(&error) => Ok(()),
        Err(error) => Err(failed(format!("deleting {} {name}", K::kind(&())), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_get_the_roles_of_their_names_and_nothing_binds_everybody() {
        let bindings = default_bindings();
        let role = |name: &str| {
            let found = bindings.iter().find(|b| b.metadata.name.as_deref() == Some(name)).unwrap();
            found.role_ref.name.clone()
        };
        assert_eq!(role("kubebyon:admins"), "cluster-admin");
        assert_eq!(role("kubebyon:editors"), "edit");
        assert_eq!(role("kubebyon:viewers"), "view");
        assert_eq!(role(KUBELET_CLIENT_USER), "system:kubelet-api-admin");
        for subject in bindings.iter().flat_map(|b| b.subjects.iter().flatten()) {
            assert!(subject.name.starts_with("kubebyon:"), "{subject:?}");
        }
    }

    #[test]
    fn an_admin_of_one_namespace_owns_no_cluster() {
        assert_eq!(cluster_role_name(ClusterRole::Admin, false), "admin");
        assert_eq!(cluster_role_name(ClusterRole::Admin, true), "cluster-admin");
        assert_eq!(cluster_role_name(ClusterRole::Edit, true), "edit");
    }

    #[test]
    fn reading_nodes_is_all_that_the_role_allows() {
        for rule in read_nodes().rules.unwrap() {
            assert_eq!(rule.resources.unwrap(), ["nodes"]);
            assert_eq!(rule.verbs, ["get", "list", "watch"]);
        }
    }
}
