//! `RoutePlanner`: the routes that follow from blocks, kept up to date by what changes.
//!
//! ```text
//! set_block, set_overlaid, set_underlay ─► routes by place and by who wants them, places touched
//! changes ─► of the places touched, what differs from what the kernel has
//! ```
//!
//! Contract:
//! - What is wanted is at any time what [`wanted`](super::wanted) makes of the same blocks from nothing.
//! - A change costs what it touches, not what there is; this node's own addresses touch everything.
//! - A place stays touched until the kernel has there what is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use kernel::netlink::{Change, Neighbour, Route, RouteKind, Rule};

use super::{RouteState, RoutedBlock, is_ours};
use crate::overlay::{self, Underlay};
use crate::trust::Verdict;
use crate::wiring::{MAIN_TABLE, ROUTE_PROTOCOL};

/// Names a block. Of two that claim the same network the first counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockRef {
    /// A block that the store has.
    Listed(Arc<str>),
    /// A block that this node's journal has.
    Own(Arc<str>),
}

/// Who wants a route. Of several at one place the first is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Block(BlockRef),
    /// The node itself, behind the tunnel.
    Node(Arc<str>),
}

/// Where a route is: its table and its destination.
type Place = (u32, IpNet);

#[derive(Debug)]
pub struct RoutePlanner {
    /// The name of this node.
    node: String,
    export_table: Option<u32>,
    underlay: Underlay,
    /// The networks of the pools that may take the tunnel.
    overlaid: Vec<IpNet>,
    blocks: BTreeMap<BlockRef, Arc<RoutedBlock>>,
    /// How many of them may take the tunnel.
    may_take_tunnel: usize,
    routes: BTreeMap<(Place, Holder), Route>,
    /// The blocks by which each other node is reached through the tunnel.
    tunnelled: BTreeMap<Arc<str>, BTreeSet<BlockRef>>,
    /// What there is of each of these nodes beside its blocks.
    nodes: BTreeMap<Arc<str>, (Vec<Route>, Neighbour)>,
    /// The same nodes' neighbours by their addresses, which follow from the nodes' names.
    neighbours: BTreeMap<IpAddr, Neighbour>,
    touched: BTreeSet<Place>,
    /// The addresses of neighbours that came, went or changed.
    touched_neighbours: BTreeSet<IpAddr>,
}

impl RoutePlanner {
    pub fn new(node: &str, export_table: Option<u32>) -> Self {
        Self {
            node: node.to_owned(),
            export_table,
            underlay: Underlay::default(),
            overlaid: Vec::new(),
            blocks: BTreeMap::new(),
            may_take_tunnel: 0,
            routes: BTreeMap::new(),
            tunnelled: BTreeMap::new(),
            nodes: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            touched: BTreeSet::new(),
            touched_neighbours: BTreeSet::new(),
        }
    }

    /// Sets or removes a block.
    pub fn set_block(&mut self, name: &BlockRef, block: Option<Arc<RoutedBlock>>) {
        if self.blocks.get(name) == block.as_ref() {
            return;
        }
        let mut nodes = BTreeSet::new();
        if let Some(old) = self.blocks.remove(name) {
            self.may_take_tunnel -= usize::from(!old.overlay.is_direct());
            self.remove(name, &old);
            nodes.insert(Arc::from(old.node.as_str()));
        }
        if let Some(new) = block {
            self.may_take_tunnel += usize::from(!new.overlay.is_direct());
            self.add(name, &new);
            nodes.insert(Arc::from(new.node.as_str()));
            self.blocks.insert(name.clone(), new);
        }
        nodes.iter().for_each(|node| self.refresh(node));
    }

    /// Sets or removes the block of that name, as the verdict has it.
    pub(crate) fn set_listed(&mut self, name: &str, verdict: &Verdict) {
        self.set_block(&BlockRef::Listed(name.into()), verdict.block(name).cloned());
    }

    /// Sets the blocks of this node's journal.
    pub(crate) fn set_own(&mut self, own: &BTreeMap<Arc<str>, Arc<RoutedBlock>>) {
        let there = self.blocks.keys().rev();
        let there = there.map_while(|name| match name {
            BlockRef::Own(name) => Some(Arc::clone(name)),
            BlockRef::Listed(_) => None,
        });
        let gone: Vec<_> = there.filter(|name| !own.contains_key(name)).collect();
        for name in gone {
            self.set_block(&BlockRef::Own(name), None);
        }
        for (name, block) in own {
            self.set_block(&BlockRef::Own(Arc::clone(name)), Some(Arc::clone(block)));
        }
    }

    /// Sets the networks of the pools that may take the tunnel.
    pub fn set_overlaid(&mut self, overlaid: Vec<IpNet>) {
        self.overlaid = overlaid;
    }

    /// Says what this node has; where that is something else than before, all routes follow anew.
    pub fn set_underlay(&mut self, underlay: Underlay) {
        if self.underlay == underlay {
            return;
        }
        self.underlay = underlay;
        self.touched.extend(std::mem::take(&mut self.routes).into_keys().map(|(place, _)| place));
        self.touched_neighbours.extend(std::mem::take(&mut self.neighbours).into_keys());
        self.nodes.clear();
        self.tunnelled.clear();
        let blocks = std::mem::take(&mut self.blocks);
        blocks.iter().for_each(|(name, block)| self.add(name, block));
        self.blocks = blocks;
        let nodes: Vec<_> = self.tunnelled.keys().cloned().collect();
        nodes.iter().for_each(|node| self.refresh(node));
    }

    /// Says whether the tunnel's device is needed: also where nothing but packets from others comes by it.
    pub fn needs_device(&self) -> bool {
        self.may_take_tunnel > 0
    }

    /// Returns everything that there should be.
    pub fn wanted(&self) -> RouteState {
        let mut routes = Vec::<Route>::new();
        for route in self.routes.values() {
            let place = |route: &Route| (route.table, route.destination);
            if routes.last().is_none_or(|last| place(last) != place(route)) {
                routes.push(*route);
            }
        }
        let neighbours = self.nodes.values().map(|(_, neighbour)| *neighbour).collect();
        RouteState { routes, neighbours, rules: self.rules() }
    }

    /// Plans what leads from what the kernel has to what is wanted, where that was touched; unless everything
    /// is known (`complete`), nothing is removed.
    pub fn changes(&self, kernel: &KernelRoutes, complete: bool) -> Vec<Change<'static>> {
        let (mut stale, mut missing) = (Vec::new(), Vec::new());
        for place in &self.touched {
            match (self.route_at(place), kernel.routes.get(place)) {
                (Some(wanted), found) if found != Some(&wanted) => missing.push(wanted),
                (None, Some(found)) if complete => stale.push(*found),
                _ => {}
            }
        }
        let (mut met, mut left) = (Vec::new(), Vec::new());
        for address in &self.touched_neighbours {
            match (self.neighbours.get(address), kernel.neighbours.get(address)) {
                (Some(wanted), found) if found != Some(wanted) => met.push(*wanted),
                (None, Some(found)) if complete => left.push(*found),
                _ => {}
            }
        }
        let rules = self.rules();
        let new = rules.iter().filter(|rule| !kernel.rules.contains(rule));
        let gone = kernel.rules.iter().filter(|rule| complete && !rules.contains(rule));
        // Neighbours come before the routes that need them. Routes are removed before others are made: a
        // network may have come in other pieces.
        let mut changes: Vec<_> = met.into_iter().map(Change::Neighbour).collect();
        changes.extend(stale.into_iter().map(Change::DeleteRoute));
        changes.extend(missing.into_iter().map(Change::Route));
        changes.extend(new.map(|rule| Change::Rule(*rule)));
        changes.extend(gone.map(|rule| Change::DeleteRule(*rule)));
        changes.extend(left.into_iter().map(Change::DeleteNeighbour));
        changes
    }

    /// Touches everything that is wanted or found.
    pub(crate) fn touch_all(&mut self, kernel: &KernelRoutes) {
        self.touched.extend(self.routes.keys().map(|(place, _)| *place));
        self.touched.extend(kernel.routes.keys());
        self.touched_neighbours.extend(self.neighbours.keys());
        self.touched_neighbours.extend(kernel.neighbours.keys());
    }

    /// Forgets what was touched where the kernel has what is wanted.
    pub fn settle(&mut self, kernel: &KernelRoutes) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|place| self.route_at(place).as_ref() != kernel.routes.get(place));
        self.touched = touched;
        let wanted = &self.neighbours;
        self.touched_neighbours.retain(|at| wanted.get(at) != kernel.neighbours.get(at));
    }

    fn route_at(&self, place: &Place) -> Option<Route> {
        let first = Holder::Block(BlockRef::Listed(Arc::default()));
        let ((at, _), route) = self.routes.range((*place, first)..).next()?;
        (at == place).then_some(*route)
    }

    fn rules(&self) -> Vec<Rule> {
        let overlaid = self.overlaid.iter().filter(|_| !self.nodes.is_empty());
        overlaid.map(|network| overlay::rule(*network)).collect()
    }

    fn add(&mut self, name: &BlockRef, block: &RoutedBlock) {
        for route in self.routes_of(block) {
            let place = (route.table, route.destination);
            self.routes.insert((place, Holder::Block(name.clone())), route);
            self.touched.insert(place);
        }
        if block.node != self.node && self.underlay.tunnel_to(block).is_some() {
            let node = Arc::from(block.node.as_str());
            self.tunnelled.entry(node).or_default().insert(name.clone());
        }
    }

    fn remove(&mut self, name: &BlockRef, block: &RoutedBlock) {
        for route in self.routes_of(block) {
            let place = (route.table, route.destination);
            self.routes.remove(&(place, Holder::Block(name.clone())));
            self.touched.insert(place);
        }
        if let Some(blocks) = self.tunnelled.get_mut(block.node.as_str()) {
            blocks.remove(name);
            if blocks.is_empty() {
                self.tunnelled.remove(block.node.as_str());
            }
        }
    }

    /// Makes what belongs to a node itself follow from the first of its blocks.
    fn refresh(&mut self, node: &Arc<str>) {
        let first = self.tunnelled.get(node).and_then(BTreeSet::first);
        let block = first.and_then(|name| self.blocks.get(name));
        let tunnel = block.and_then(|block| Some((self.underlay.tunnel_to(block)?, &block.via)));
        let new = tunnel.map(|(tunnel, via)| overlay::to_node(node, tunnel, via));
        if self.nodes.get(node) == new.as_ref() {
            return;
        }
        let holder = Holder::Node(Arc::clone(node));
        if let Some((routes, neighbour)) = self.nodes.remove(node) {
            for route in routes {
                let place = (route.table, route.destination);
                self.routes.remove(&(place, holder.clone()));
                self.touched.insert(place);
            }
            self.neighbours.remove(&neighbour.address);
            self.touched_neighbours.insert(neighbour.address);
        }
        if let Some((routes, neighbour)) = new {
            for route in &routes {
                let place = (route.table, route.destination);
                self.routes.insert((place, holder.clone()), *route);
                self.touched.insert(place);
            }
            self.neighbours.insert(neighbour.address, neighbour);
            self.touched_neighbours.insert(neighbour.address);
            self.nodes.insert(Arc::clone(node), (routes, neighbour));
        }
    }

    fn routes_of(&self, block: &RoutedBlock) -> Vec<Route> {
        let mut routes = Vec::new();
        for network in &block.networks {
            let destination = network.trunc();
            let mut want = |table, kind| {
                routes.push(Route { destination, table, protocol: ROUTE_PROTOCOL, kind });
            };
            if block.node == self.node {
                // A block that is one address can only have the pod's own route.
                if network.prefix_len() < network.max_prefix_len() {
                    want(MAIN_TABLE, RouteKind::Blackhole);
                }
                if let Some(table) = self.export_table {
                    want(table, RouteKind::Blackhole);
                }
            } else if let Some(kind) = self.underlay.way(block, destination) {
                want(MAIN_TABLE, kind);
            }
        }
        routes
    }
}

/// What the kernel has of routes to blocks, as it was read and as it was changed since.
#[derive(Clone, Debug, Default)]
pub struct KernelRoutes {
    routes: BTreeMap<Place, Route>,
    neighbours: BTreeMap<IpAddr, Neighbour>,
    rules: Vec<Rule>,
}

impl From<RouteState> for KernelRoutes {
    fn from(found: RouteState) -> Self {
        let routes = found.routes.into_iter().filter(is_ours);
        let neighbours = found.neighbours.into_iter();
        Self {
            routes: routes.map(|route| ((route.table, route.destination), route)).collect(),
            neighbours: neighbours.map(|neighbour| (neighbour.address, neighbour)).collect(),
            rules: found.rules,
        }
    }
}

impl KernelRoutes {
    /// Takes in a change that was made.
    pub(crate) fn made(&mut self, change: &Change<'_>) {
        match change {
            Change::Route(route) => {
                self.routes.insert((route.table, route.destination), *route);
            }
            Change::DeleteRoute(route) => {
                self.routes.remove(&(route.table, route.destination));
            }
            Change::Neighbour(neighbour) => {
                self.neighbours.insert(neighbour.address, *neighbour);
            }
            Change::DeleteNeighbour(neighbour) => {
                self.neighbours.remove(&neighbour.address);
            }
            Change::Rule(rule) => self.rules.push(*rule),
            Change::DeleteRule(rule) => self.rules.retain(|other| other != rule),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
