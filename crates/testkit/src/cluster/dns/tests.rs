use serde_json::json;

use super::*;

fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.push(0);
    query.extend_from_slice(&kind.to_be_bytes());
    query.extend_from_slice(&INTERNET.to_be_bytes());
    query
}

/// The code of an answer, and how many records it has.
fn said(answer: &[u8]) -> (u8, u8) {
    (answer[3] & 0x0f, answer[7])
}

fn a_zone() -> Zone {
    let services = [
        json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": { "clusterIP": "10.96.0.7" } }),
        json!({ "metadata": { "name": "db", "namespace": "shop" }, "spec": { "clusterIP": "None" } }),
    ]
    .map(|service| serde_json::from_value(service).unwrap());
    let endpoints = json!({
        "metadata": { "name": "db", "namespace": "shop" },
        "subsets": [{ "addresses": [{ "ip": "10.244.1.2", "hostname": "db-0" }, { "ip": "10.244.2.2" }],
                      "notReadyAddresses": [{ "ip": "10.244.3.2" }] }],
    });
    let others = json!({ "metadata": { "name": "web", "namespace": "shop" },
                         "subsets": [{ "addresses": [{ "ip": "10.244.9.9" }] }] });
    zone(&services, &[endpoints, others].map(|some| serde_json::from_value(some).unwrap()))
}

#[test]
fn a_service_has_its_address_and_a_headless_one_those_of_its_endpoints() {
    let zone = a_zone();
    let ask = |name, kind| said(&answer(&query(name, kind), Some(&zone)).unwrap());

    let web = answer(&query("WEB.shop.svc.cluster.local", A), Some(&zone)).unwrap();
    assert_eq!(said(&web), (NO_ERROR, 1));
    assert!(web.ends_with(&[0, 4, 10, 96, 0, 7]));
    assert_eq!(web[..2], [0xab, 0xcd]);
    assert_eq!(ask("web.shop.svc.cluster.local", AAAA), (NO_ERROR, 0));
    assert_eq!(ask("db.shop.svc.cluster.local", A), (NO_ERROR, 2));
    assert_eq!(ask("db-0.db.shop.svc.cluster.local", A), (NO_ERROR, 1));
    assert_eq!(ask("web.shop.svc.cluster.local.shop.svc.cluster.local", A), (NO_SUCH_NAME, 0));
    assert_eq!(ask("example.com", A), (NO_SUCH_NAME, 0));
}

#[test]
fn before_it_knows_the_cluster_it_says_that_it_failed() {
    assert_eq!(said(&answer(&query("web.shop", A), None).unwrap()), (SERVER_FAILURE, 0));
}

#[test]
fn an_answer_holds_as_many_addresses_as_fit() {
    let addresses = (0..200).map(|n| IpAddr::from([10, 0, 0, n])).collect();
    let zone = Zone::from([("many.a.svc.cluster.local".to_owned(), addresses)]);
    let answer = answer(&query("many.a.svc.cluster.local", A), Some(&zone)).unwrap();
    assert!(answer.len() <= LONGEST);
    assert!(said(&answer).1 > 20);
}

#[test]
fn what_is_no_question_gets_no_answer() {
    let zone = a_zone();
    let whole = query("web.shop.svc.cluster.local", A);
    for length in 0..whole.len() {
        assert_eq!(answer(&whole[..length], Some(&zone)), None, "{length} bytes");
    }
    let mut response = whole.clone();
    response[2] |= 0x80;
    assert_eq!(answer(&response, Some(&zone)), None);
    let mut two = whole.clone();
    two[5] = 2;
    assert_eq!(answer(&two, Some(&zone)), None);
    let mut pointer = whole.clone();
    pointer[12] = 0xc0;
    assert_eq!(answer(&pointer, Some(&zone)), None);
    // A name longer than names are.
    let long = ["a".repeat(60).as_str(); 5].join(".");
    assert_eq!(answer(&query(&long, A), Some(&zone)), None);
}
