use serde_json::json;

use super::*;
use crate::cli::terminal::Paint;

fn render(list: &ResourceList, extra: ExtraColumns) -> String {
    list.table(extra).render(Paint::always(false))
}

fn listing(value: Value) -> ResourceList {
    serde_json::from_value(value).unwrap()
}

const PLAIN: ExtraColumns = ExtraColumns { clusters: false, namespaces: false, wide: false };

#[test]
fn the_servers_columns_are_kept_and_wide_ones_only_when_asked() {
    let pods = listing(json!({
        "columns": [{"name": "Name", "type": "string"}, {"name": "Node", "priority": 1}, {"name": "Restarts"}],
        "rows": [{"name": "web", "namespace": "default", "cells": ["web", "n1", 3]},
                 {"name": "db", "namespace": "default", "cells": ["db", null, 0]}],
    }));
    assert_eq!(render(&pods, PLAIN), "NAME   RESTARTS\nweb    3\ndb     0");
    let wide = ExtraColumns { wide: true, ..PLAIN };
    assert_eq!(
        render(&pods, wide),
        "NAME   NODE     RESTARTS\nweb    n1       3\ndb     <none>   0"
    );
}

#[test]
fn the_cluster_comes_first_and_the_namespace_where_there_is_one() {
    let extra = ExtraColumns { clusters: true, namespaces: true, wide: false };
    let pods = listing(json!({
        "columns": [{"name": "Name"}],
        "rows": [{"cluster": "prod-日本", "name": "web", "namespace": "a", "cells": ["web"]},
                 {"cluster": "dev", "name": "web", "namespace": "b", "cells": ["web"]}],
    }));
    assert_eq!(
        render(&pods, extra),
        "CLUSTER     NAMESPACE   NAME\nprod-日本   a           web\ndev         b           web"
    );
    let nodes = listing(json!({
        "columns": [{"name": "Name"}],
        "rows": [{"cluster": "dev", "name": "n1", "cells": ["n1"]}],
    }));
    assert_eq!(render(&nodes, extra), "CLUSTER   NAME\ndev       n1");
}

#[test]
fn rows_of_another_version_are_put_under_the_same_titles() {
    let column = |name: &str| Column { name: name.to_owned(), priority: 0 };
    let table = ResourceTable::new(PLAIN, vec![column("Name"), column("Ready")]);
    let row = Row { cells: vec![json!("1/1"), json!("new"), json!("web")], ..Row::default() };
    let theirs = [column("Ready"), column("Added later"), column("Name")];
    assert_eq!(table.cells(&theirs, &row), ["web", "1/1"]);
    let row = Row { cells: vec![json!("web")], ..Row::default() };
    assert_eq!(table.cells(&[column("Name")], &row), ["web", "<none>"]);
    assert_eq!(table.cells(&[], &row), ["web", "<none>"]);
}

#[test]
fn objects_are_named_as_kubectl_names_them() {
    let object =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    assert_eq!(name(&object, "deploy"), "deployment.apps/web");
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}});
    assert_eq!(name(&object, "po"), "pod/web");
    assert_eq!(name(&json!({"metadata": {"name": "web"}}), "po"), "po/web");
}
