//! The API's own description, from the handlers themselves.

use axum::Extension;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, Info, OpenApi, PathItem, Ref, Required, ResponseBuilder,
    SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::routes;

use super::console::takes_gzip;
use super::pipeline::COOKIE;
use super::problem::ProblemBody;
use super::{Route, Routes, compress};

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::open(), routes!(openapi))
}

/// Written and compressed once, served as it is: anybody may ask for it, as often as they like.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    plain: Bytes,
    gzip: Option<Bytes>,
}

impl Document {
    pub(crate) fn of(routes: &Routes) -> Self {
        let plain = Bytes::from(text(routes));
        Self { gzip: compress::gzip(&plain), plain }
    }
}

/// This description
#[utoipa::path(
    get, path = "/openapi.json", tag = "about", security(()),
    responses((status = 200, description = "An OpenAPI document", body = Object))
)]
async fn openapi(Extension(document): Extension<Document>, headers: HeaderMap) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json"), (header::VARY, "accept-encoding")];
    match document.gzip.filter(|_| takes_gzip(&headers)) {
        Some(gzip) => (kind, [(header::CONTENT_ENCODING, "gzip")], gzip).into_response(),
        None => (kind, document.plain).into_response(),
    }
}

/// As it is checked in.
pub(crate) fn text(routes: &Routes) -> String {
    let mut document = routes.document();
    document.info = Info::new("Fairlead", "v1");
    document.info.description = Some(
        "Fleets of Kubernetes clusters: a slow, stuck or dead one holds up nothing but itself. \
         What one may not see is answered as what is not there. Every request has a deadline \
         (`Request-Timeout`), every refusal is a problem with a code from one table."
            .to_owned(),
    );
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            complete(operation);
        }
    }
    describe_components(&mut document);
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Adds to each operation what holds of all of them.
fn complete(operation: &mut Operation) {
    let problem =
        ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemBody::name()))).build();
    let response = ResponseBuilder::new()
        .description("A problem; its code says what to do next")
        .content("application/problem+json", problem)
        .build();
    operation.responses.responses.insert("default".to_owned(), response.into());
    operation.parameters.get_or_insert_default().push(timeout().into());
}

fn timeout() -> Parameter {
    ParameterBuilder::new()
        .name("Request-Timeout")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("How long an answer is worth having: seconds, or such as `1m30s`"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn describe_components(document: &mut OpenApi) {
    let components = document.components.get_or_insert_with(Components::new);
    components.schemas.insert(ProblemBody::name().into_owned(), ProblemBody::schema());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let about = "Set by a login; anything but GET needs its `x-csrf-token` too";
    let cookie = ApiKey::Cookie(ApiKeyValue::with_description(COOKIE, about));
    components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    let none: [&str; 0] = [];
    document.security = Some(vec![
        SecurityRequirement::new("token", none),
        SecurityRequirement::new("session", none),
    ]);
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, patch, delete, .. } = item;
    [get, put, post, patch, delete].into_iter().flatten()
}

#[cfg(test)]
mod tests;
