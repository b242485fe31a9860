#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn objects_are_in_the_order_in_which_they_can_be_applied() {
    let kind = |kind: &str| json!({"kind": kind});
    let mut objects =
        ["Zebra", "Deployment", "AddressPool", "CustomResourceDefinition", "ServiceAccount"]
            .map(kind);
    order::sort(&mut objects);
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["ServiceAccount", "CustomResourceDefinition", "Deployment", "AddressPool", "Zebra"]
    );
}

#[test]
fn a_chart_of_other_files_says_what_it_lacks() {
    let chart = Chart::from_files(BTreeMap::new());
    let error = chart.render(&Release::default(), &Values::default()).unwrap_err().to_string();
    assert_eq!(error, "values.yaml: the chart lacks this file");
}
