//! How labels look in the OpenAPI document; `domain::label` holds the rules.

use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{Object, ObjectBuilder, RefOr, Schema, Type, schema::SchemaType};

use crate::domain::label::MAX_LABELS;

const KEY: &str =
    "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?){0,3}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

fn map(value_type: SchemaType) -> Object {
    let value = ObjectBuilder::new().schema_type(value_type).pattern(Some(VALUE)).max_length(Some(63)).build();
    let key = ObjectBuilder::new().schema_type(Type::String).pattern(Some(KEY)).max_length(Some(317)).build();
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(Schema::Object(key)))
        .additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(Schema::Object(value)))))
        .max_properties(Some(MAX_LABELS))
        .build()
}

/// Labels of a cluster.
pub(super) fn labels() -> Object {
    map(Type::String.into())
}

/// Labels to set, and with `null` to remove.
pub(super) fn label_changes() -> Object {
    let mut object = map(SchemaType::from_iter([Type::String, Type::Null]));
    object.schema_type = SchemaType::from_iter([Type::Object, Type::Null]);
    object
}
