use kube::core::ObjectMeta;
use proptest::prelude::*;

use super::super::scope::tests::{
    NAMESPACES_THERE, any_namespace, any_permissions, caller, found, pods_in,
};
use super::*;

fn pod(namespace: &str, name: &str) -> DynamicObject {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    DynamicObject { types: None, metadata, data: json!({}) }
}

fn row(namespace: &str, name: &str) -> resources::Row {
    resources::Row {
        cells: vec![name.into()],
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Default::default()
    }
}

proptest! {
    #[test]
    fn no_event_is_of_a_namespace_that_may_not_be_seen(
        permissions in any_permissions(),
        namespace in any_namespace(),
    ) {
        let caller = caller(permissions);
        let pods = found("pods", true);
        let Ok(scope) = Scope::list(&caller, "c", &pods, namespace, Verb::Watch) else {
            return Ok(());
        };
        let there = pods_in(namespace);
        let hidden =
            |namespace: &str| !caller.permissions.may_see_namespace("c", namespace);
        let of = |object: &DynamicObject| object.metadata.namespace.clone().unwrap();

        let items: Vec<_> = there.iter().map(|(at, name)| pod(at, name)).collect();
        let all = Page { items: items.clone(), continue_token: Some("b/p".into()), remaining: Some(3) };
        let Some(Change::Listed(page)) = seen(&scope, Change::<_, DynamicObject>::Listed(all)) else {
            panic!("a list is told, if only as an empty one")
        };
        prop_assert!(page.items.iter().all(|object| !hidden(&of(object))));
        prop_assert!(page.continue_token.is_none() || scope.is_whole());
        for object in items {
            let at = of(&object);
            for change in [Change::Applied(object.clone()), Change::Deleted(object)] {
                let told = seen::<Page<_>, _>(&scope, change);
                prop_assert!(told.is_none() || !hidden(&at));
            }
        }

        let rows: Vec<_> = there.iter().map(|(at, name)| row(at, name)).collect();
        let table = resources::Table { rows: rows.clone(), ..resources::Table::default() };
        let Some(Change::Listed(table)) = seen(&scope, Change::<_, resources::Row>::Listed(table)) else {
            panic!("a table is told, if only as an empty one")
        };
        prop_assert!(table.rows.iter().all(|row| !hidden(row.namespace.as_deref().unwrap())));
        for row in rows {
            let at = row.namespace.clone().unwrap();
            let told = seen::<resources::Table, _>(&scope, Change::Applied(row));
            prop_assert!(told.is_none() || !hidden(&at));
        }
    }
}

#[test]
fn every_namespace_is_tried_by_the_properties() {
    let tried: std::collections::BTreeSet<_> =
        pods_in(None).into_iter().map(|(at, _)| at).collect();
    assert_eq!(tried.len(), NAMESPACES_THERE.len());
}
