use super::{AddressBlock, AddressBlockSpec, AddressBlockStatus};
use crate::Kind;

fn spec() -> AddressBlockSpec {
    AddressBlockSpec {
        pool: "default".to_owned(),
        index: 7,
        node: "node-1.example".to_owned(),
        ipv4: Some("10.64.0.224/27".parse().unwrap()),
        ipv6: Some("fd00:64::e0/123".parse().unwrap()),
        node_addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
    }
}

#[test]
fn a_block_is_named_by_its_pool_and_its_number() {
    assert_eq!(AddressBlock::new("default-7", spec()).check(), Ok(()));
    let problems = AddressBlock::new("default-07", spec()).check().unwrap_err();
    assert_eq!(problems.to_string(), "metadata.name: must be default-7, by the pool and the index");
}

#[test]
fn networks_and_addresses_are_written_as_text() {
    let json = serde_json::to_value(spec()).unwrap();
    assert_eq!(json["ipv4"], "10.64.0.224/27");
    assert_eq!(json["ipv6"], "fd00:64::e0/123");
    assert_eq!(json["nodeAddresses"][1], "2001:db8::1");
}

#[test]
fn every_problem_is_told_at_once() {
    let mut bad = AddressBlock::new(
        "x",
        AddressBlockSpec {
            pool: "A".to_owned(),
            node: String::new(),
            ipv4: Some("10.64.0.225/27".parse().unwrap()),
            ipv6: Some("fd00:64::e1/124".parse().unwrap()),
            node_addresses: vec!["192.0.2.1".parse().unwrap(); 17],
            ..spec()
        },
    );
    bad.status = Some(AddressBlockStatus {
        trouble: Some("x".repeat(4097)),
        ..AddressBlockStatus::default()
    });
    let status = bad.check_status().unwrap_err();
    assert_eq!(status.to_string(), "status.trouble: has more than 4096 characters");
    let problems = bad.check().unwrap_err();
    let fields: Vec<_> = problems.0.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.pool",
            "spec.node",
            "metadata.name",
            "spec.ipv4",
            "spec.ipv6",
            "spec",
            "spec.nodeAddresses"
        ]
    );
    let neither = AddressBlockSpec { ipv4: None, ipv6: None, ..spec() };
    let problems = AddressBlock::new("default-7", neither).check().unwrap_err();
    assert_eq!(problems.to_string(), "spec: has neither ipv4 nor ipv6");
}

#[test]
fn the_node_says_how_a_block_is_used_whatever_else_is_wrong_with_it() {
    let mut odd = AddressBlock::new("default-07", spec());
    odd.status = Some(AddressBlockStatus { used: 1, free: 31, trouble: None });
    assert!(odd.check().is_err());
    assert_eq!(odd.check_status(), Ok(()));
}
