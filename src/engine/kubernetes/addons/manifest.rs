//! An object that the platform keeps as it should be, as JSON.

use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::super::{EngineError, FIELD_MANAGER, already_exists, failed};
use super::MANAGED;

/// An object as it should be. What it does not name is the cluster's.
pub struct Manifest {
    resource: ApiResource,
    namespace: Option<&'static str>,
    name: &'static str,
    value: Value,
}

impl Manifest {
    /// Of kind `K`. `body` has what stands beside `metadata`, and may have `metadata` with further labels.
    pub fn new<K: Resource<DynamicType = ()>>(namespace: Option<&'static str>, name: &'static str, mut body: Value) -> Self {
        let resource = ApiResource::erase::<K>(&());
        body["apiVersion"] = resource.api_version.clone().into();
        body["kind"] = resource.kind.clone().into();
        body["metadata"]["name"] = name.into();
        if let Some(namespace) = namespace {
            body["metadata"]["namespace"] = namespace.into();
        }
        body["metadata"]["labels"]["app.kubernetes.io/managed-by"] = FIELD_MANAGER.into();
        Self { resource, namespace, name, value: body }
    }

    /// The object as JSON.
    pub fn value(&self) -> &Value {
        &self.value
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    fn what(&self) -> String {
        let at = self.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} {at}{}", self.resource.kind, self.name)
    }

    /// The object as it is, when it is there.
    pub async fn find(&self, client: &Client) -> Result<Option<DynamicObject>, EngineError> {
        self.api(client).get_opt(self.name).await.map_err(|e| failed(self.what(), e))
    }

    /// Brings it to what it should be, unless its owner has taken it over.
    pub async fn ensure(&self, client: &Client) -> Result<(), EngineError> {
        if let Some(there) = self.find(client).await? {
            let is = serde_json::to_value(&there).unwrap_or_default();
            if is_the_owners(&there.metadata) || covers(&is, &self.value) {
                return Ok(());
            }
        }
        let forced = PatchParams::apply(FIELD_MANAGER).force();
        let applied = self.api(client).patch(self.name, &forced, &Patch::Apply(&self.value)).await;
        applied.map(drop).map_err(|e| failed(self.what(), e))
    }

    /// Makes it where it is not there, and leaves it alone where it is.
    pub async fn create_if_absent(&self, client: &Client) -> Result<(), EngineError> {
        if self.find(client).await?.is_some() {
            return Ok(());
        }
        let object: DynamicObject = serde_json::from_value(self.value.clone()).map_err(|e| EngineError::Fatal(e.into()))?;
        let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.api(client).create(&post, &object).await {
            Ok(_) => Ok(()),
            Err(error) if already_exists(&error) => Ok(()),
            Err(error) => Err(failed(self.what(), error)),
        }
    }
}

/// Whether an object's owner has taken it over.
pub fn is_the_owners(meta: &ObjectMeta) -> bool {
    let said =
        |of: &Option<std::collections::BTreeMap<String, String>>| of.as_ref().and_then(|m| m.get(MANAGED)).is_some_and(|v| v == "false");
    said(&meta.labels) || said(&meta.annotations)
}

/// Whether `is` says all that `wanted` says: it may have more fields, which Kubernetes or others have set, but no more elements in a list.
fn covers(is: &Value, wanted: &Value) -> bool {
    match (is, wanted) {
        (Value::Object(is), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match is.get(key) {
            Some(is) => covers(is, wanted),
            None => matches!(wanted, Value::Null) || *wanted == json!({}) || *wanted == json!([]),
        }),
        (Value::Array(is), Value::Array(wanted)) => {
            is.len() == wanted.len() && is.iter().zip(wanted).all(|(is, wanted)| covers(is, wanted))
        }
        _ => is == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_added_is_no_difference_and_what_they_changed_is() {
        let wanted = json!({"spec": {"ports": [{"port": 53, "name": "dns"}], "selector": {"a": "b"}, "empty": {}}});
        let mut is =
            json!({"spec": {"ports": [{"port": 53, "name": "dns", "protocol": "UDP"}], "selector": {"a": "b"}, "type": "ClusterIP"}});
        assert!(covers(&is, &wanted));
        is["spec"]["ports"][0]["port"] = 54.into();
        assert!(!covers(&is, &wanted));
        is["spec"]["ports"] = json!([{"port": 53, "name": "dns"}, {"port": 5353}]);
        assert!(!covers(&is, &wanted), "an element more");
        assert!(!covers(&json!({"spec": {}}), &wanted));
    }
}
