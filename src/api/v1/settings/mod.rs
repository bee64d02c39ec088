//! Settings: what is effective and where it comes from (the configuration beats a setting, a setting the default).

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use crate::api::auth::Caller;
use crate::api::extract::{JsonBody, Path};
use crate::api::problem::{Kind, Problem};
use crate::api::state::{ApiState, FixedSetting};
use crate::domain::cluster::PublicAccessMode;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::{KubernetesVersion, access, settings};
use crate::store::{self, Sql};

/// The most characters of a value.
const VALUE_MAX: usize = 512;

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SettingSource {
    /// Nothing was said.
    Default,
    /// It was set.
    Setting,
    /// The configuration gives it, so that it cannot be set.
    Configuration,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Setting {
    /// Its key.
    pub key: String,
    /// The value that holds.
    pub value: String,
    /// Where the value comes from.
    pub source: SettingSource,
    /// The file, variable or flag that fixes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_by: Option<String>,
    /// What it is for.
    pub description: String,
}

/// Every setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Settings {
    /// Every one that there is, in a fixed order.
    pub items: Vec<Setting>,
}

/// A new value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSetting {
    /// The value; empty: back to the default.
    #[schema(max_length = 512)]
    pub value: String,
}

/// The settings as they hold.
pub(crate) struct Effective {
    fixed: BTreeMap<String, FixedSetting>,
    set: BTreeMap<String, String>,
    defaults: BTreeMap<&'static str, String>,
}

impl Effective {
    /// As they hold in this view of the store.
    pub async fn read(state: &ApiState, sql: &mut dyn Sql) -> Result<Self, Problem> {
        let addressing = state.ports.addresses.current();
        let set = store::settings::all(sql).await?;
        let base = access::url(&addressing.advertised.0, addressing.advertised.1);
        let mut effective = Self { fixed: state.ports.fixed.fixed(), set, defaults: BTreeMap::new() };
        effective.defaults.insert("public_base_url", base.clone());
        let join = effective.find("public_base_url").map_or(base, |(value, _)| value.to_owned());
        effective.defaults.insert("join_base_url", join);
        effective.defaults.insert("public_access_mode", PublicAccessMode::default().as_str().to_owned());
        effective.defaults.insert("control_plane_host", addressing.control_plane_host);
        effective.defaults.insert("kubernetes_version", state.ports.catalogue.default_version().to_string());
        Ok(effective)
    }

    fn find(&self, key: &str) -> Option<(&str, SettingSource)> {
        let fixed = self.fixed.get(key).map(|fixed| (fixed.value.as_str(), SettingSource::Configuration));
        let set = || self.set.get(key).map(|value| (value.as_str(), SettingSource::Setting));
        let default = || self.defaults.get(key).map(|value| (value.as_str(), SettingSource::Default));
        fixed.or_else(set).or_else(default)
    }

    /// The version of clusters created without one.
    pub fn kubernetes_version(&self) -> Result<KubernetesVersion, Problem> {
        Ok(self.find("kubernetes_version").map_or("", |(value, _)| value).parse()?)
    }

    /// The URL that join commands name, without a slash at its end.
    pub fn join_base_url(&self) -> String {
        self.find("join_base_url").map_or("", |(value, _)| value).trim_end_matches('/').to_owned()
    }

    /// How clusters created without a mode are reached.
    pub fn public_access_mode(&self) -> PublicAccessMode {
        let domain = PublicAccessMode::Domain;
        match self.find("public_access_mode") {
            Some((mode, _)) if mode == domain.as_str() => domain,
            _ => PublicAccessMode::Nodeport,
        }
    }

    fn setting(&self, key: &str) -> Option<Setting> {
        let (key, description) = settings::KNOWN.iter().find(|(known, _)| *known == key)?;
        let (value, source) = self.find(key).unwrap_or(("", SettingSource::Default));
        Some(Setting {
            key: (*key).to_owned(),
            value: value.to_owned(),
            source,
            fixed_by: self.fixed.get(*key).map(|fixed| fixed.source.clone()),
            description: (*description).to_owned(),
        })
    }
}

fn unknown(key: &str) -> Problem {
    let known = settings::KNOWN.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
    Problem::new(Kind::NotFound, format!("there is no setting {key:?}; there are {known}"))
}

/// List settings
///
/// Every setting that there is, with the value that holds and where it comes from.
#[utoipa::path(get, path = "/api/v1/settings", tag = "settings", operation_id = "list_settings",
    responses((status = 200, description = "Every setting", body = Settings)))]
pub async fn list(State(state): State<ApiState>, _caller: Caller) -> Result<Json<Settings>, Problem> {
    let effective = Effective::read(&state, &mut *state.store.read().await?).await?;
    Ok(Json(Settings { items: settings::KNOWN.iter().filter_map(|(key, _)| effective.setting(key)).collect() }))
}

/// Get a setting
#[utoipa::path(get, path = "/api/v1/settings/{key}", tag = "settings", operation_id = "get_setting",
    params(("key" = String, Path, description = "The setting's key", min_length = 1, max_length = 64)),
    responses((status = 200, description = "The setting", body = Setting)))]
pub async fn get(State(state): State<ApiState>, _caller: Caller, Path(key): Path<String>) -> Result<Json<Setting>, Problem> {
    let effective = Effective::read(&state, &mut *state.store.read().await?).await?;
    effective.setting(&key).map(Json).ok_or_else(|| unknown(&key))
}

/// Set a setting
///
/// For platform administrators. What the configuration gives is refused; the answer names the file.
#[utoipa::path(put, path = "/api/v1/settings/{key}", tag = "settings", operation_id = "put_setting", request_body = PutSetting,
    params(("key" = String, Path, description = "The setting's key", min_length = 1, max_length = 64)),
    responses((status = 200, description = "The setting as it holds from now on", body = Setting)))]
pub async fn put(
    State(state): State<ApiState>,
    caller: Caller,
    Path(key): Path<String>,
    body: JsonBody<PutSetting>,
) -> Result<Json<Setting>, Problem> {
    caller.require_platform_admin("changing settings")?;
    if !settings::KNOWN.iter().any(|(known, _)| *known == key) {
        return Err(unknown(&key));
    }
    let value = body.value.value;
    if value.chars().count() > VALUE_MAX {
        return Err(Problem::invalid("value", format!("a value has at most {VALUE_MAX} characters")));
    }
    settings::validate(&key, &value).map_err(|invalid| Problem::invalid("value", invalid.message))?;
    if let Some(fixed) = state.ports.fixed.fixed().get(&key) {
        return Err(Problem::new(Kind::SettingFixed, format!("{key} is fixed by {}; change it there", fixed.source)));
    }
    if key == "kubernetes_version" && !value.is_empty() {
        crate::api::v1::versions::known(&state, &value).await?;
    }
    let mut tx = state.store.begin().await?;
    store::settings::set(&mut tx, &key, &value).await?;
    let said = if value.is_empty() { format!("{key} is back to its default") } else { format!("{key} is {value}") };
    let event = NewEvent {
        project_id: None,
        cluster: None,
        severity: Severity::Normal,
        reason: "SettingChanged".into(),
        message: said,
        actor: Some(caller.name().to_owned()),
    };
    store::events::append(&mut tx, state.ambient.now(), event).await?;
    if key == "control_plane_host" {
        // The host is in every cluster's certificate and status.
        for cluster in store::clusters::all(tx.sql()).await? {
            super::clusters::enqueue_reconcile(&mut tx, &state.ambient, &cluster).await?;
        }
    }
    tx.commit().await?;
    let effective = Effective::read(&state, &mut *state.store.read().await?).await?;
    effective.setting(&key).map(Json).ok_or_else(|| unknown(&key))
}
