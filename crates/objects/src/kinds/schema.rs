//! Fits generated schemas to what every API server knows.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Number, Value};

/// Drops number formats that Kubernetes does not know: it has signed numbers only, and warns of others.
pub(super) fn fit(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        let validation = version.schema.as_mut();
        if let Some(schema) = validation.and_then(|it| it.open_api_v3_schema.as_mut()) {
            fit_schema(schema);
        }
    }
    definition
}

fn fit_schema(schema: &mut JSONSchemaProps) {
    let signed = match schema.format.as_deref() {
        Some("uint8") => Some(("int32", Some(f64::from(u8::MAX)))),
        Some("uint16") => Some(("int32", Some(f64::from(u16::MAX)))),
        Some("uint32") => Some(("int64", Some(f64::from(u32::MAX)))),
        // Half of them: as many as the format has.
        Some("uint64") => Some(("int64", None)),
        _ => None,
    };
    if let Some((format, most)) = signed {
        schema.format = Some(format.to_owned());
        schema.minimum = schema.minimum.or(Some(0.0));
        schema.maximum = schema.maximum.or(most);
    }
    schema.properties.iter_mut().flatten().for_each(|(_, property)| fit_schema(property));
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => fit_schema(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(fit_schema),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        fit_schema(values);
    }
}

/// The definition as JSON, as it is written for people and sent to a server: numbers without a fraction
/// are whole.
pub fn manifest(definition: &CustomResourceDefinition) -> serde_json::Result<Value> {
    let mut manifest = serde_json::to_value(definition)?;
    make_whole(&mut manifest);
    Ok(manifest)
}

#[expect(clippy::cast_possible_truncation, reason = "compared with what it was")]
fn make_whole(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            #[expect(
                clippy::cast_precision_loss,
                clippy::float_cmp,
                reason = "exactly equal or not"
            )]
            if (float as i64) as f64 == float {
                *number = Number::from(float as i64);
            }
        }
        _ => {}
    }
}
