use proptest::prelude::*;

use super::super::scope::tests::{
    any_namespace, any_permissions, caller, found, permissions, pods_in, rule,
};
use super::*;

fn row(namespace: &str, name: &str) -> resources::Row {
    resources::Row {
        cells: vec![name.into(), 1.into()],
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Default::default()
    }
}

fn page(items: Vec<resources::Row>, more: Option<&str>) -> Page<resources::Row> {
    let continue_token = more.map(ToOwned::to_owned);
    Page { items, continue_token, remaining: Some(99) }
}

/// In the order of the store behind an API server.
fn rows_in(namespace: Option<&str>) -> Vec<resources::Row> {
    let mut rows: Vec<_> = pods_in(namespace).iter().map(|(at, name)| row(at, name)).collect();
    rows.sort_by_key(Item::place);
    rows
}

proptest! {
    #[test]
    fn pages_of_what_may_be_seen_name_nothing_else_and_leave_nothing_out(
        permissions in any_permissions(),
        namespace in any_namespace(),
        limit in 1_u32..5,
        read in 1_usize..5,
    ) {
        let caller = caller(permissions);
        let pods = found("pods", true);
        let Ok(scope) = Scope::list(&caller, "c", &pods, namespace, Verb::List) else {
            return Ok(());
        };
        let seen = |row: &resources::Row| {
            caller.permissions.may_see_namespace("c", row.namespace.as_deref().unwrap())
        };
        let mut shown = Vec::new();
        let mut query = ListQuery::of("pods");
        query.limit = Some(limit);
        if scope.is_empty() || scope.is_whole() {
            return Ok(());
        }
        loop {
            let mut filling = VisiblePage::new(&scope, &query);
            for (index, some) in rows_in(namespace).chunks(read).enumerate() {
                let more = (index + 1) * read < rows_in(namespace).len();
                if filling.take(page(some.to_vec(), more.then_some("more"))).is_none() {
                    break;
                }
            }
            let page = filling.page;
            prop_assert!(page.items.len() <= limit as usize);
            prop_assert!(page.remaining.is_none());
            if let Some(token) = &page.continue_token {
                prop_assert_eq!(token, &page.items.last().unwrap().place());
            }
            shown.extend(page.items);
            query.continue_token = page.continue_token;
            if query.continue_token.is_none() {
                break;
            }
        }
        prop_assert!(shown.iter().all(seen));
        let all: Vec<_> = rows_in(namespace).into_iter().filter(|row| row.is_in(&scope)).collect();
        prop_assert_eq!(shown, all);
    }
}

#[test]
fn a_narrow_table_has_the_columns_that_kubectl_shows() {
    let column = |name: &str, priority| resources::Column {
        name: name.to_owned(),
        kind: "string".to_owned(),
        format: String::new(),
        priority,
    };
    let table = || resources::Table {
        columns: vec![column("Name", 0), column("Node", 1)],
        rows: vec![row("a", "p")],
        ..resources::Table::default()
    };
    let shown = |form| {
        let mut table = table();
        ColumnChoice::of(&table.columns, form).narrow(&mut table);
        (table.columns.len(), table.rows[0].cells.len())
    };
    assert_eq!(shown(ListForm::Table), (1, 1));
    assert_eq!(shown(ListForm::Wide), (2, 2));
}

#[test]
fn a_list_goes_on_where_it_stopped_also_when_that_is_gone() {
    let caller = caller(permissions(vec![rule(&["a", "b"], &["pods"], &["list"])], Vec::new()));
    let scope = Scope::list(&caller, "c", &found("pods", true), None, Verb::List).unwrap();
    let mut query = ListQuery::of("pods");
    query.continue_token = Some("a/pod-1".to_owned());
    let mut rows = rows_in(None);
    rows.retain(|row| row.place() != "a/pod-1");
    let mut shown = VisiblePage::new(&scope, &query);
    shown.take(page(rows, None));
    let places: Vec<_> = shown.page.items.iter().map(Item::place).collect();
    assert_eq!(places, ["a/pod-2", "b/pod-0", "b/pod-1", "b/pod-2"]);
}
