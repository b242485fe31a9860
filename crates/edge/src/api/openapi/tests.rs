use std::path::Path;

use super::*;
use crate::api::route;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api/openapi.json");

#[test]
fn openapi_json_is_what_the_code_says() {
    let generated = text(&crate::api::routes());
    let path = Path::new(FILE);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == generated,
        "api/openapi.json is not what the code says; write it anew with \
         `UPDATE=1 cargo nextest run -p edge openapi` and look at the difference"
    );
}

#[test]
fn openapi_says_of_every_route_what_it_is_for_and_what_it_answers() {
    let routes = crate::api::routes();
    let document = routes.document();
    let mut seen = 0;
    for (path, item) in &document.paths.paths {
        for (method, operation) in route::operations(item) {
            seen += 1;
            let summary = operation.summary.as_deref().unwrap_or_default();
            assert!(!summary.is_empty(), "{method} {path} has no summary");
            assert!(operation.tags.is_some(), "{method} {path} has no tag");
            let answers = &operation.responses.responses;
            assert!(
                answers.keys().any(|s| s.starts_with(['1', '2'])),
                "{method} {path} answers nothing"
            );
            for name in path.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}')) {
                let parameters = operation.parameters.iter().flatten();
                let names = parameters.map(|parameter| match parameter {
                    utoipa::openapi::RefOr::T(parameter) => parameter.name.as_str(),
                    utoipa::openapi::RefOr::Ref(_) => "",
                });
                assert!(
                    names.into_iter().any(|n| n == name),
                    "{method} {path} does not say {name}"
                );
            }
        }
    }
    let facts = routes.facts();
    assert_eq!(seen, facts.len(), "a route is declared twice, or not described");
}

#[test]
fn openapi_has_one_type_of_each_name() {
    let mut seen = std::collections::BTreeMap::new();
    for (name, schema) in crate::api::routes().schemas() {
        let first = seen.entry(name.clone()).or_insert_with(|| schema.clone());
        assert_eq!(*first, schema, "two types are called {name}; give one `#[schema(as = …)]`");
    }
}
