//! The pod network as the store and the clusters have it: pools, blocks, addresses.

use std::net::IpAddr;

use access::Verb;
use axum::Json;
use axum::extract::State;
use fleet::resources::ListQuery;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use objects::Within;
use objects::kinds::{AddressBlock, AddressPool};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::listing;
use super::scope::Scope;
use super::{Api, Caller, Problem, Query, Route, Routes};

/// The resources in the cluster `-`.
const POOLS: &str = "addresspools.fairlead.dev";
const BLOCKS: &str = "addressblocks.fairlead.dev";

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(pools))
        .with(Route::read(), routes!(blocks))
        .with(Route::list().fan_out(), routes!(addresses))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Pool {
    name: String,
    /// A block has 2 to the power of this many addresses.
    block_size_bits: u8,
    subnets: Vec<PoolSubnet>,
    blocks: u64,
    /// Blocks that nodes have claimed.
    claimed: u64,
    used: u64,
    free: u64,
    /// Whether a controller has counted: otherwise the numbers are zero.
    counted: bool,
}

#[derive(Serialize, ToSchema)]
struct PoolSubnet {
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct Pools {
    pools: Vec<Pool>,
}

/// The address pools, and how full they are
#[utoipa::path(
    get, path = "/net/pools", tag = "net",
    responses((status = 200, description = "By name", body = Pools))
)]
async fn pools(State(api): State<Api>, caller: Caller) -> Result<Json<Pools>, Problem> {
    caller.may_in_fleet(POOLS, Verb::List)?;
    let all = api.objects.list::<AddressPool>(&Within::default(), caller.deadline).await?.items;
    let mut pools: Vec<_> = all.into_iter().map(Pool::from).collect();
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Json(Pools { pools }))
}

impl From<AddressPool> for Pool {
    fn from(pool: AddressPool) -> Self {
        let name = pool.name_any();
        let counted = pool.status.is_some();
        let status = pool.status.unwrap_or_default();
        let subnets = pool.spec.subnets.into_iter();
        Self {
            name,
            block_size_bits: pool.spec.block_size_bits,
            subnets: subnets
                .map(|subnet| PoolSubnet { ipv4: subnet.ipv4, ipv6: subnet.ipv6 })
                .collect(),
            blocks: status.blocks,
            claimed: status.claimed,
            used: status.used,
            free: status.free,
            counted,
        }
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Block {
    name: String,
    pool: String,
    index: u32,
    /// The node that has it.
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<String>,
    /// To which others route the block's addresses.
    #[schema(value_type = Vec<String>)]
    node_addresses: Vec<IpAddr>,
    used: u32,
    free: u32,
    /// What is wrong with the node's part of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

impl From<&AddressBlock> for Block {
    fn from(block: &AddressBlock) -> Self {
        let status = block.status.clone().unwrap_or_default();
        Self {
            name: block.name_any(),
            pool: block.spec.pool.clone(),
            index: block.spec.index,
            node: block.spec.node.clone(),
            ipv4: block.spec.ipv4.map(|net| net.to_string()),
            ipv6: block.spec.ipv6.map(|net| net.to_string()),
            node_addresses: block.spec.node_addresses.clone(),
            used: status.used,
            free: status.free,
            trouble: status.trouble,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct Blocks {
    blocks: Vec<Block>,
}

/// The blocks of addresses that nodes have claimed
#[utoipa::path(
    get, path = "/net/blocks", tag = "net",
    responses((status = 200, description = "By pool and number", body = Blocks))
)]
async fn blocks(State(api): State<Api>, caller: Caller) -> Result<Json<Blocks>, Problem> {
    caller.may_in_fleet(BLOCKS, Verb::List)?;
    let mut all = stored_blocks(&api, &caller).await?;
    all.sort_by(|one, other| {
        (&one.spec.pool, one.spec.index).cmp(&(&other.spec.pool, other.spec.index))
    });
    Ok(Json(Blocks { blocks: all.iter().map(Block::from).collect() }))
}

async fn stored_blocks(api: &Api, caller: &Caller) -> Result<Vec<AddressBlock>, Problem> {
    Ok(api.objects.list::<AddressBlock>(&Within::default(), caller.deadline).await?.items)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AddressParams {
    /// The cluster whose pods are asked for.
    cluster: String,
    /// One, or several: `a,b`; all that one may see unless said.
    namespace: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct Address {
    #[schema(value_type = String)]
    address: IpAddr,
    namespace: String,
    pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The pool and the block that it is of, if it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<String>,
    /// The block belongs to another node than the pod runs on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    misplaced: bool,
}

#[derive(Serialize, ToSchema)]
struct Addresses {
    /// In the order of the addresses.
    addresses: Vec<Address>,
}

/// Which pod has which address, and of which block it is
///
/// As the cluster's pods say it. Pods in the network of their node have that node's address, and are
/// left out.
#[utoipa::path(
    get, path = "/net/addresses", tag = "net", params(AddressParams),
    responses((status = 200, description = "By address", body = Addresses))
)]
async fn addresses(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<AddressParams>,
) -> Result<Json<Addresses>, Problem> {
    caller.may_in_fleet(BLOCKS, Verb::List)?;
    if !caller.permissions.may_see_cluster(&asked.cluster) {
        return Err(Problem::no_such_cluster(&asked.cluster));
    }
    let connection = caller.connection(&api, &asked.cluster)?;
    let found = connection.find("pods.v1.", caller.deadline).await?;
    let named = asked.namespace.iter().flat_map(|named| named.split(','));
    let named: Vec<_> = named.map(|name| name.trim().to_owned()).collect();
    let scope = Scope::list_among(&caller, &asked.cluster, &found, &named, Verb::List)?;
    let query = ListQuery::of(listing::exact(&found));
    let pods = listing::objects(&connection, &scope, &query, caller.deadline).await?;
    let blocks = stored_blocks(&api, &caller).await?;
    let mut addresses: Vec<_> = pods
        .items
        .into_iter()
        .filter_map(|pod| pod.try_parse::<Pod>().ok())
        .flat_map(|pod| of_pod(&pod, &blocks))
        .collect();
    addresses.sort_by_key(|address| address.address);
    Ok(Json(Addresses { addresses }))
}

fn of_pod(pod: &Pod, blocks: &[AddressBlock]) -> Vec<Address> {
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    if spec.is_some_and(|spec| spec.host_network == Some(true)) {
        return Vec::new();
    }
    let ips = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    let node = spec.and_then(|spec| spec.node_name.clone());
    let address = |address: IpAddr| {
        let block = blocks.iter().find(|block| {
            let nets = [block.spec.ipv4.map(IpNet::from), block.spec.ipv6.map(IpNet::from)];
            nets.into_iter().flatten().any(|net| net.contains(&address))
        });
        Address {
            address,
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            pool: block.map(|block| block.spec.pool.clone()),
            block: block.map(ResourceExt::name_any),
            misplaced: block.is_some_and(|block| node.as_ref() != Some(&block.spec.node)),
            node: node.clone(),
        }
    };
    ips.filter_map(|ip| ip.ip.parse().ok()).map(address).collect()
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::tests::test_api::TestApi;

    fn block(pool: &str, net: &str, node: &str) -> AddressBlock {
        serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressBlock",
            "metadata": { "name": format!("{pool}-0") },
            "spec": { "pool": pool, "index": 0, "node": node, "ipv4": net, "nodeAddresses": [] },
        }))
        .unwrap()
    }

    #[test]
    fn an_address_names_its_block_and_says_when_it_is_on_another_node() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "nodeName": "one", "containers": [] },
            "status": { "podIPs": [{ "ip": "10.0.0.9" }, { "ip": "fd00::9" }] },
        }))
        .unwrap();
        let blocks = [block("a", "10.0.0.0/28", "one"), block("b", "10.0.1.0/28", "two")];
        let told = of_pod(&pod, &blocks);
        assert_eq!(
            (told.len(), told[0].block.as_deref(), told[0].misplaced),
            (2, Some("a-0"), false)
        );
        assert_eq!(told[1].pool, None);
        let elsewhere = [block("a", "10.0.0.0/28", "two")];
        assert!(of_pod(&pod, &elsewhere)[0].misplaced);
        let mut host = pod;
        host.spec.as_mut().unwrap().host_network = Some(true);
        assert!(of_pod(&host, &blocks).is_empty());
    }

    #[tokio::test]
    async fn pools_and_blocks_are_those_of_the_store() {
        let world = TestApi::new().ready().await;
        let soon = stallproof::Deadline::after(std::time::Duration::from_secs(30));
        let pool: AddressPool = serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressPool",
            "metadata": { "name": "a" }, "spec": { "subnets": [{ "ipv4": "10.0.0.0/16" }] },
        }))
        .unwrap();
        world.objects.create(&pool, soon).await.unwrap();
        world.objects.create(&block("a", "10.0.0.0/27", "one"), soon).await.unwrap();
        let pools = world.ask(Method::GET, "/net/pools", Value::Null).await.json();
        assert_eq!(pools["pools"][0]["name"], "a", "{pools}");
        let blocks = world.ask(Method::GET, "/net/blocks", Value::Null).await.json();
        assert_eq!(blocks["blocks"][0]["ipv4"], "10.0.0.0/27", "{blocks}");
        let ann = world.somebody("ann", &[["*", "*", "*", "*"]]).await;
        let refused = world.ask_as(&ann, Method::GET, "/net/pools", Value::Null).await;
        assert_eq!(refused.status, 403);
    }
}
