//! The OpenAPI document: what the routes declare, made complete with what holds for all of them (problems, security).
//!
//! `docs/openapi.json` is this text, committed; a test holds the two together.

use std::sync::OnceLock;

use serde_json::{Value, json};
use utoipa::openapi::{InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, RefOr, Schema};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::problem::{FieldError, MEDIA_TYPE, Problem};

/// An operation's further problems, in its declaration; replaced by responses in the document.
const FURTHER: &str = "x-problems";

/// What a document begins with.
pub(super) fn base() -> OpenApi {
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("KubeBYON")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Hands out Kubernetes clusters to tenants who bring their own nodes. Every answer that is no success is a problem (RFC 9457).",
        ))
        .license(Some(license))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// The document as pretty JSON, with a newline at its end.
pub fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let (_, openapi) = super::router::declared().split_for_parts();
        let mut document = serde_json::to_value(openapi).expect("an OpenAPI document is JSON");
        complete(&mut document);
        let mut text = serde_json::to_string_pretty(&document).expect("a value is JSON");
        text.push('\n');
        text
    })
}

fn complete(document: &mut Value) {
    let components = &mut document["components"];
    for (name, schema) in [(Problem::name(), Problem::schema()), (FieldError::name(), FieldError::schema())] {
        let schema: RefOr<Schema> = schema;
        components["schemas"][name.as_ref()] = serde_json::to_value(schema).expect("a schema is JSON");
    }
    components["securitySchemes"] = json!({
        "bearer": { "type": "http", "scheme": "bearer", "description": "A session (kbs_…) or an API token (kbt_…)." },
        "cookie": {
            "type": "apiKey", "in": "cookie", "name": super::auth::COOKIE,
            "description": "A browser's session; changes need Sec-Fetch-Site or Origin of the platform itself."
        }
    });
    document["security"] = json!([{ "bearer": [] }, { "cookie": [] }]);
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for item in paths.values_mut().filter_map(Value::as_object_mut) {
        for (method, operation) in item.iter_mut() {
            complete_operation(method, operation);
        }
    }
}

fn complete_operation(method: &str, operation: &mut Value) {
    let mut statuses = vec![400, 500, 503, 507];
    if operation.get("security").is_none() {
        statuses.extend([401, 403]);
        if operation["parameters"].as_array().is_some_and(|all| all.iter().any(|p| p["in"] == "path")) {
            statuses.push(404);
        }
    }
    if operation.get("requestBody").is_some() {
        operation["requestBody"]["required"] = json!(true);
        statuses.extend([413, 415, 422]);
    }
    if matches!(method, "post" | "put" | "patch" | "delete") {
        statuses.push(409);
    }
    if let Some(further) = operation.as_object_mut().and_then(|o| o.remove(FURTHER)) {
        statuses.extend(further.as_array().into_iter().flatten().filter_map(Value::as_u64));
    }
    for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
        // An absent parameter is absent; there is no null in a URL.
        drop_null(&mut parameter["schema"]);
    }
    if operation["parameters"].is_null() {
        operation.as_object_mut().map(|o| o.remove("parameters"));
    }
    for status in statuses {
        let responses = &mut operation["responses"];
        if responses.get(status.to_string()).is_none() {
            let title = axum::http::StatusCode::from_u16(status as u16).ok().and_then(|s| s.canonical_reason()).unwrap_or("Problem");
            responses[status.to_string()] = json!({
                "description": title,
                "content": { MEDIA_TYPE: { "schema": { "$ref": "#/components/schemas/Problem" } } }
            });
        }
    }
}

fn drop_null(schema: &mut Value) {
    if let Some(types) = schema["type"].as_array() {
        let mut rest: Vec<Value> = types.iter().filter(|t| *t != "null").cloned().collect();
        if rest.len() == 1 {
            schema["type"] = rest.remove(0);
        }
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let mut rest: Vec<Value> = choices.iter().filter(|c| c["type"] != "null").cloned().collect();
        if rest.len() == 1 {
            *schema = rest.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_says_how_it_fails_and_who_may_call_it() {
        let document: Value = serde_json::from_str(document()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let of = format!("{method} {path}");
                assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{of}");
                assert!(operation.get(FURTHER).is_none(), "{of}");
                for status in ["400", "500", "507"] {
                    assert!(operation["responses"][status]["content"][MEDIA_TYPE].is_object(), "{of} {status}");
                }
                assert_eq!(
                    operation.get("security").is_none(),
                    operation["responses"].get("401").is_some() && path != "/api/v1/sessions",
                    "{of}"
                );
                assert!(operation["summary"].is_string(), "{of}");
            }
        }
        assert!(!document.to_string().contains("\"$ref\":\"#/components/schemas/Value\""));
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document: Value = serde_json::from_str(document()).unwrap();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(map) => {
                    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
                        assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                    }
                    open.extend(map.values());
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
    }
}
