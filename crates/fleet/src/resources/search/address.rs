//! Finds an address, or the beginning of one, among the addresses of an object.

use std::net::IpAddr;

use ipnet::IpNet;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

use super::{Field, How, Matched};

/// Whether a text may be an address or the beginning of one, such as `10.0.` or `fd00:`.
pub(super) fn may_be(text: &str) -> bool {
    let of_an_address = |byte: u8| byte.is_ascii_hexdigit() || byte == b'.' || byte == b':';
    text.bytes().any(|byte| byte == b'.' || byte == b':') && text.bytes().all(of_an_address)
}

/// Whether objects of a kind have addresses that are searched.
pub(super) fn has_some(kind: &ApiResource) -> bool {
    matches!(
        (kind.group.as_str(), kind.kind.as_str()),
        ("", "Pod" | "Service" | "Node")
            | ("networking.k8s.io" | "extensions", "Ingress")
            | ("fairlead.dev", "AddressBlock")
    )
}

/// Returns the best match among the addresses of an object. `text` is in lower case.
pub(super) fn found(kind: &ApiResource, object: &DynamicObject, text: &str) -> Option<Matched> {
    if !may_be(text) || !has_some(kind) {
        return None;
    }
    if kind.kind == "AddressBlock" {
        return block(&object.data["spec"], text.parse().ok()?);
    }
    let addresses = addresses(&kind.kind, &object.data);
    addresses.into_iter().filter_map(|address| matched(address, text)).min()
}

fn matched(address: &str, text: &str) -> Option<Matched> {
    let same = || Some(address.parse::<IpAddr>().ok()? == text.parse::<IpAddr>().ok()?);
    let how = if same() == Some(true) {
        How::Exact
    } else if address.to_lowercase().starts_with(text) {
        How::Prefix
    } else {
        return None;
    };
    Some(Matched { field: Field::Address, how, value: address.to_owned() })
}

fn addresses<'a>(kind: &str, object: &'a Value) -> Vec<&'a str> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let all = |list: &'a Value| list.as_array().into_iter().flatten();
    let balancers = || all(&status["loadBalancer"]["ingress"]).map(|it| &it["ip"]);
    let values: Vec<&Value> = match kind {
        "Pod" => all(&status["podIPs"]).map(|it| &it["ip"]).chain([&status["podIP"]]).collect(),
        "Service" => [&spec["clusterIP"], &spec["loadBalancerIP"]]
            .into_iter()
            .chain(all(&spec["clusterIPs"]))
            .chain(all(&spec["externalIPs"]))
            .chain(balancers())
            .collect(),
        "Ingress" => balancers().collect(),
        "Node" => all(&status["addresses"]).map(|it| &it["address"]).collect(),
        _ => Vec::new(),
    };
    values.into_iter().filter_map(Value::as_str).collect()
}

/// Returns the network of an address block that contains the address.
fn block(spec: &Value, address: IpAddr) -> Option<Matched> {
    let networks = ["ipv4", "ipv6"].into_iter().filter_map(|family| spec[family].as_str());
    let mut of_it = networks
        .filter(|network| network.parse::<IpNet>().is_ok_and(|network| network.contains(&address)));
    let value = of_it.next()?.to_owned();
    Some(Matched { field: Field::Address, how: How::Contains, value })
}
