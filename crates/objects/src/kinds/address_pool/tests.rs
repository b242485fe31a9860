use serde_json::json;

use super::{AddressPool, AddressPoolStatus, Networks, NodeBlocks};
use crate::{Invalid, Kind};

fn pool(spec: &serde_json::Value) -> AddressPool {
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "AddressPool",
        "metadata": {"name": "default"},
        "spec": spec,
    }))
    .unwrap()
}

fn problems(spec: &serde_json::Value) -> Vec<String> {
    let problems = pool(spec).check().unwrap_err();
    problems.0.iter().map(|(field, problem)| format!("{field}: {problem}")).collect()
}

#[test]
fn a_pool_of_either_family_or_of_both_is_taken_and_has_blocks_of_32() {
    for subnets in [
        json!([{"ipv4": "10.64.0.0/16"}]),
        json!([{"ipv6": "fd00:64::/112"}, {"ipv6": "fd00:65::/104"}]),
        json!([{"ipv4": "10.64.0.0/16", "ipv6": "fd00:64::/112"}]),
    ] {
        let pool = pool(&json!({ "subnets": subnets }));
        assert_eq!(pool.check(), Ok(()));
        assert_eq!(pool.spec.block_size_bits, 5);
    }
    // As small as a block, and blocks of one address.
    assert_eq!(pool(&json!({"subnets": [{"ipv4": "10.0.0.0/27"}]})).check(), Ok(()));
    let one = json!({"blockSizeBits": 0, "subnets": [{"ipv4": "10.0.0.1/32"}]});
    assert_eq!(pool(&one).check(), Ok(()));
}

#[test]
fn each_mistake_has_its_sentence() {
    for (spec, sentence) in [
        (
            json!({"subnets": []}),
            "spec.subnets: needs at least one subnet, such as ipv4: 10.64.0.0/16",
        ),
        (
            json!({"subnets": [{}]}),
            "spec.subnets[0]: has neither ipv4 nor ipv6: give at least one network",
        ),
        (
            json!({"subnets": [{"ipv4": "10.64.0.0"}]}),
            "spec.subnets[0].ipv4: \"10.64.0.0\" is not a network such as 10.64.0.0/16",
        ),
        (
            json!({"subnets": [{"ipv4": "fd00::/112"}]}),
            "spec.subnets[0].ipv4: \"fd00::/112\" is not a network such as 10.64.0.0/16",
        ),
        (
            json!({"subnets": [{"ipv4": "10.64.1.0/16"}]}),
            "spec.subnets[0].ipv4: 10.64.1.0/16 has bits set after its prefix; 10.64.0.0/16 has not",
        ),
        (
            json!({"subnets": [{"ipv4": "10.0.0.0/08"}]}),
            "spec.subnets[0].ipv4: \"10.0.0.0/08\" must be written as 10.0.0.0/8",
        ),
        (
            json!({"subnets": [{"ipv6": "fd00::10.0.0.0/112"}]}),
            "spec.subnets[0].ipv6: \"fd00::10.0.0.0/112\" must be written as fd00::a00:0/112",
        ),
        (
            json!({"subnets": [{"ipv4": "10.64.0.0/28"}]}),
            "spec.subnets[0].ipv4: 10.64.0.0/28 has 2^4 addresses and a block 2^5: it has no room for one",
        ),
        (
            json!({"subnets": [{"ipv6": "fd00::/64"}]}),
            "spec.subnets[0].ipv6: fd00::/64 has 2^64 addresses; 2^24 at most, a /104",
        ),
        (
            json!({"subnets": [{"ipv4": "10.64.0.0/16", "ipv6": "fd00::/108"}]}),
            "spec.subnets[0]: 10.64.0.0/16 and fd00::/108 must have as many addresses as each other: \
             with this ipv4, ipv6 is a /112",
        ),
        (
            json!({"subnets": [{"ipv4": "10.64.0.0/16"}, {"ipv6": "fd00::/112"}]}),
            "spec.subnets[1]: has IPv6 alone, and subnets[0] IPv4 alone: pods of one pool are alike",
        ),
        (
            json!({"subnets": [{"ipv4": "10.64.0.0/16"}, {"ipv4": "10.64.7.0/24"}]}),
            "spec.subnets[1]: 10.64.7.0/24 overlaps subnets[0], 10.64.0.0/16",
        ),
        (
            json!({"subnets": [{"ipv4": "169.254.0.0/24"}]}),
            "spec.subnets[0].ipv4: 169.254.0.0/24 overlaps 169.254.0.0/16, which is for one link, not for pods",
        ),
        (
            json!({"blockSizeBits": 17, "subnets": [{"ipv4": "10.0.0.0/8"}]}),
            "spec.blockSizeBits: is 17; must be 0 to 16",
        ),
    ] {
        assert_eq!(problems(&spec), [sentence], "{spec}");
    }
}

#[test]
fn what_is_written_is_bounded() {
    let subnets: Vec<_> = (0..17).map(|i| json!({ "ipv4": format!("10.{i}.0.0/16") })).collect();
    let mut long = pool(&json!({ "subnets": subnets }));
    long.metadata.name = Some("p".repeat(64));
    let per_node = vec![NodeBlocks::default(); 257];
    long.status = Some(AddressPoolStatus { per_node, ..AddressPoolStatus::default() });
    let fields =
        |problems: Invalid| -> Vec<_> { problems.0.into_iter().map(|(field, _)| field).collect() };
    assert_eq!(fields(long.check().unwrap_err()), ["metadata.name", "spec.subnets"]);
    assert_eq!(fields(long.check_status().unwrap_err()), ["status.perNode"]);
}

#[test]
fn networks_overlap_in_either_family() {
    let networks =
        |ipv4: &str, ipv6: &str| Networks { ipv4: ipv4.parse().ok(), ipv6: ipv6.parse().ok() };
    let one = networks("10.0.0.0/16", "fd00::/112");
    assert!(one.overlaps(&networks("10.0.3.0/24", "")));
    assert!(one.overlaps(&networks("10.1.0.0/24", "fd00::/120")));
    assert!(!one.overlaps(&networks("10.1.0.0/16", "fd01::/112")));
    assert!(!networks("10.0.0.0/16", "").overlaps(&networks("", "fd00::/112")));
    assert!(one.contains(&networks("10.0.3.0/24", "")));
    assert!(!one.contains(&networks("10.0.3.0/24", "fd01::/120")));
    assert_eq!(one.to_string(), "10.0.0.0/16 and fd00::/112");
    assert_eq!((one.host_bits(), networks("", "").host_bits()), (Some(16), None));
}

#[test]
fn masquerading_is_read_and_its_mistakes_have_sentences() {
    let with = |masquerade: serde_json::Value| json!({"subnets": [{"ipv4": "10.64.0.0/16"}], "masquerade": masquerade});
    assert_eq!(pool(&json!({"subnets": [{"ipv4": "10.64.0.0/16"}]})).spec.masquerade(), Ok(None));
    let whole = pool(&with(json!({"never": ["192.168.0.0/16", "fd00::/8"], "ports": "2000-3000"})));
    assert_eq!(whole.check(), Ok(()));
    let rule = whole.spec.masquerade().unwrap().unwrap();
    assert_eq!(rule.ports, Some((2000, 3000)));
    assert_eq!(rule.never, ["192.168.0.0/16", "fd00::/8"].map(|net| net.parse().unwrap()));
    assert_eq!(
        pool(&with(json!({}))).spec.masquerade(),
        Ok(Some(super::MasqueradeRule::default()))
    );
    for (masquerade, sentence) in [
        (
            json!({"never": ["192.168.0.1/16"]}),
            "spec.masquerade.never[0]: 192.168.0.1/16 has bits set after its prefix; 192.168.0.0/16 has not",
        ),
        (
            json!({"never": ["everywhere"]}),
            "spec.masquerade.never[0]: \"everywhere\" is not a network such as 192.168.0.0/16",
        ),
        (
            json!({"ports": "3000-2000"}),
            "spec.masquerade.ports: \"3000-2000\" is not a range of ports such as 32768-60999",
        ),
        (
            json!({"ports": "0-70000"}),
            "spec.masquerade.ports: \"0-70000\" is not a range of ports such as 32768-60999",
        ),
    ] {
        assert_eq!(problems(&with(masquerade)), [sentence]);
    }
}
