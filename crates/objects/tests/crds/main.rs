//! `api/crds/` is what the types say, and every API server takes it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod cel;
mod cost;

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use kube::ResourceExt;
use objects::kinds;

const UPDATE: &str = "UPDATE=1 cargo nextest run -p objects crds";

#[test]
fn the_crds_in_the_repository_are_those_of_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api/crds");
    let mut expected = BTreeMap::new();
    for definition in kinds::definitions() {
        let file = format!("{}.yaml", definition.spec.names.plural);
        expected
            .insert(file, serde_saphyr::to_string(&kinds::manifest(&definition).unwrap()).unwrap());
    }
    if env::var_os("UPDATE").is_some() {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        for (file, yaml) in &expected {
            fs::write(dir.join(file), yaml).unwrap();
        }
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{error}; make it: {UPDATE}")) {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        found.insert(file, fs::read_to_string(&path).unwrap());
    }
    for (file, yaml) in &expected {
        assert!(found.get(file) == Some(yaml), "api/crds/{file} is out of date; {UPDATE}");
    }
    let stale: Vec<_> = found.keys().filter(|file| !expected.contains_key(*file)).collect();
    assert!(stale.is_empty(), "api/crds has {stale:?}, which no type makes; {UPDATE}");
}

#[test]
fn definitions_are_in_the_order_of_their_names_and_of_one_family() {
    let definitions = kinds::definitions();
    let names: Vec<_> = definitions.iter().map(ResourceExt::name_any).collect();
    assert!(names.is_sorted(), "{names:?}");
    for definition in &definitions {
        assert_eq!(definition.spec.group, "fairlead.dev");
        let names = &definition.spec.names;
        assert_eq!(names.categories.as_deref(), Some(&["fairlead".to_owned()][..]));
        assert!(names.short_names.as_ref().is_some_and(|names| !names.is_empty()));
        let version = &definition.spec.versions[0];
        let columns = version.additional_printer_columns.as_deref().unwrap_or_default();
        assert_eq!(columns.last().map(|column| column.name.as_str()), Some("Age"));
    }
}
