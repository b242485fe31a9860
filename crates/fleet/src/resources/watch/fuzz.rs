use k8s_openapi::api::core::v1::Pod;
use kube::core::ApiResource;

use super::*;

/// The lines of a watch of a cluster, as objects, as rows of a table and as pods: what a watch does with them is
/// [`objects::fuzz::heard`]. The same text is read as a list: in all of its forms, or in none.
pub fn watch_table_lines(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let found = ServedKind {
        resource: ApiResource::erase::<Pod>(&()),
        singular: "pod".to_owned(),
        namespaced: true,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    };
    hear::<Objects>(&found, text);
    hear::<Rows>(&found, text);
    hear::<Typed<Pod>>(&found, text);
    if let Ok(list) = Objects::parse(&found, text) {
        assert!(list.items.iter().all(|object| object.types.is_some()));
        assert!(list.continue_token.as_ref().is_none_or(|token| !token.is_empty()));
        let typed = <Typed<Pod>>::parse(&found, text).expect("a list of objects is one of pods");
        assert!(typed.items.len() <= list.items.len());
        assert_eq!(typed.version, list.version);
    }
    if let Ok(list) = Rows::parse(&found, text) {
        assert!(list.continue_token.as_ref().is_none_or(|token| !token.is_empty()));
    }
}

fn hear<F: ListFormat>(found: &ServedKind, text: &str) {
    let lines = text.lines().map_while(|line| parse::<F>(found, line).ok());
    objects::fuzz::heard(lines);
}
