//! Stands in for CoreDNS: answers for `NAME.NAMESPACE.svc.cluster.local` from Services and Endpoints.
//!
//! - A Service has its ClusterIP; a headless one the addresses of its endpoints, each of which also has
//!   its own name if it has a hostname. That addresses which are not ready are published, where a Service
//!   asks for it, is the endpoints controller's doing.
//! - Every other name does not exist, and that is said at once. There is no SRV, no ExternalName, no TCP.
//! - What it knows is at most half a second old while the API server answers, and stays when it does not.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

const DOMAIN: &str = "svc.cluster.local";
const FRESH_FOR: Duration = Duration::from_millis(500);
const ASK_WITHIN: Duration = Duration::from_secs(2);
const TTL: u32 = 5;

/// What every resolver takes over UDP. More addresses than fit are left out.
const LONGEST: usize = 512;

const NO_ERROR: u8 = 0;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

const A: u16 = 1;
const AAAA: u16 = 28;
const ANY: u16 = 255;
const INTERNET: u16 = 1;

/// Names, in lower case and without the last dot, and their addresses.
pub(super) type Zone = BTreeMap<String, Vec<IpAddr>>;

/// Answers what comes in at `socket`, one question after the other, until it is dropped.
pub(super) async fn serve(socket: UdpSocket, client: Client) {
    let mut names = Names { client, zone: None, asked: None };
    let mut query = [0; LONGEST];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut query).await else {
            // An answer that nobody took comes back as an error of the next call.
            tokio::task::yield_now().await;
            continue;
        };
        names.refresh().await;
        if let Some(answer) = answer(&query[..length], names.zone.as_ref()) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

struct Names {
    client: Client,
    zone: Option<Zone>,
    asked: Option<Instant>,
}

impl Names {
    async fn refresh(&mut self) {
        if self.asked.is_some_and(|asked| asked.elapsed() < FRESH_FOR) {
            return;
        }
        // From the server's cache: this is asked often.
        let from_cache = ListParams::default().match_any();
        let services = Api::<Service>::all(self.client.clone());
        let endpoints = Api::<Endpoints>::all(self.client.clone());
        let listed =
            async { tokio::try_join!(services.list(&from_cache), endpoints.list(&from_cache)) };
        if let Ok(Ok((services, endpoints))) = timeout(ASK_WITHIN, listed).await {
            self.zone = Some(zone(&services.items, &endpoints.items));
        }
        self.asked = Some(Instant::now());
    }
}

pub(super) fn zone(services: &[Service], endpoints: &[Endpoints]) -> Zone {
    let mut zone = Zone::new();
    let mut headless = Vec::new();
    for service in services {
        let name =
            format!("{}.{}.{DOMAIN}", service.name_any(), service.namespace().unwrap_or_default());
        let spec = service.spec.as_ref();
        let first = spec.and_then(|spec| spec.cluster_ip.clone()).unwrap_or_default();
        if first == "None" {
            headless.push(name.clone());
            zone.insert(name, Vec::new());
        } else {
            let all = spec.and_then(|spec| spec.cluster_ips.clone()).unwrap_or_else(|| vec![first]);
            zone.insert(name, all.iter().filter_map(|address| address.parse().ok()).collect());
        }
    }
    for endpoints in endpoints {
        let (service, namespace) =
            (endpoints.name_any(), endpoints.namespace().unwrap_or_default());
        let name = format!("{service}.{namespace}.{DOMAIN}");
        if !headless.contains(&name) {
            continue;
        }
        let subsets = endpoints.subsets.iter().flatten();
        for endpoint in subsets.flat_map(|subset| subset.addresses.iter().flatten()) {
            let Ok(address) = endpoint.ip.parse() else { continue };
            zone.entry(name.clone()).or_default().push(address);
            if let Some(host) = &endpoint.hostname {
                zone.entry(format!("{host}.{name}")).or_default().push(address);
            }
        }
    }
    zone
}

/// The answer to a message; none to what is no question. Without a zone, the server has failed.
pub(super) fn answer(query: &[u8], zone: Option<&Zone>) -> Option<Vec<u8>> {
    let header = query.get(..12)?;
    let is_response = header[2] & 0x80 != 0;
    let operation = header[2] >> 3 & 0x0f;
    let questions = u16::from_be_bytes([header[4], header[5]]);
    if is_response || questions != 1 {
        return None;
    }
    let (name, after) = question_name(query)?;
    let kind = u16::from_be_bytes(query.get(after..after + 2)?.try_into().ok()?);
    let class = u16::from_be_bytes(query.get(after + 2..after + 4)?.try_into().ok()?);

    let (code, addresses) = if operation != 0 || class != INTERNET {
        (NOT_IMPLEMENTED, &[][..])
    } else {
        match zone.map(|zone| zone.get(&name)) {
            Some(Some(addresses)) => (NO_ERROR, &addresses[..]),
            Some(None) => (NO_SUCH_NAME, &[][..]),
            None => (SERVER_FAILURE, &[][..]),
        }
    };
    let mut answer = Vec::with_capacity(LONGEST);
    answer.extend_from_slice(&header[..2]);
    // A response, with authority; recursion is as wanted as it was, and available, else some complain.
    answer.extend_from_slice(&[0x84 | header[2] & 0x79, 0x80 | code]);
    answer.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(&query[12..after + 4]);
    let mut count = 0_u16;
    for address in addresses {
        let (record, data) = match address {
            IpAddr::V4(address) => (A, address.octets().to_vec()),
            IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
        };
        // A pointer to the question's name, type, class, TTL, length: twelve bytes.
        if kind != record && kind != ANY || answer.len() + 12 + data.len() > LONGEST {
            continue;
        }
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&record.to_be_bytes());
        answer.extend_from_slice(&INTERNET.to_be_bytes());
        answer.extend_from_slice(&TTL.to_be_bytes());
        answer.extend_from_slice(&u16::try_from(data.len()).ok()?.to_be_bytes());
        answer.extend_from_slice(&data);
        count += 1;
    }
    answer[6..8].copy_from_slice(&count.to_be_bytes());
    Some(answer)
}

/// The name in a message's question, and where it ends. A pointer has no place in a question.
fn question_name(query: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if length > 63 || at - 12 + length > 254 {
            return None;
        }
        let label = std::str::from_utf8(query.get(at..at + length)?).ok()?;
        labels.push(label.to_ascii_lowercase());
        at += length;
    }
    Some((labels.join("."), at))
}

#[cfg(test)]
mod tests;
