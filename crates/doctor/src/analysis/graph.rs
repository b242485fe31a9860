//! Findings drawn: who waits for what, and who holds it.

use crate::report::{EdgeKind, Finding, GraphEdge, GraphNode, Level, NodeKind, WaitGraph};

/// Entry points and candidates drawn for one resource.
const DRAWN: usize = 6;

/// Adds a finding's resource, its waiters by entry point, and its candidates.
pub(super) fn draw(graph: &mut WaitGraph, finding: &Finding) {
    let resource = format!("r:{}", finding.id);
    let node = |id: &str, kind, label: String, count| GraphNode {
        id: id.to_owned(),
        kind,
        label,
        count,
        finding: Some(finding.id.clone()),
    };
    graph.nodes.push(node(
        &resource,
        NodeKind::Resource,
        finding.resource.name.clone(),
        finding.waiters.total,
    ));
    for (i, entry) in finding.waiters.by_entry.iter().take(DRAWN).enumerate() {
        let id = format!("w:{}:{i}", finding.id);
        graph.nodes.push(node(
            &id,
            NodeKind::Goroutines,
            entry.name.clone(),
            entry.count,
        ));
        graph.edges.push(GraphEdge {
            from: id,
            to: resource.clone(),
            kind: EdgeKind::WaitsFor,
            count: entry.count,
            confidence: Level::Certain,
            in_cycle: false,
        });
    }
    if finding.cycle.is_empty() {
        for (i, holder) in finding.holders.iter().take(DRAWN).enumerate() {
            let id = format!("h:{}:{i}", finding.id);
            let label = match &holder.blocked_on {
                Some(on) => format!("{} (waits for {on})", holder.frame),
                None => holder.frame.clone(),
            };
            graph
                .nodes
                .push(node(&id, NodeKind::Goroutines, label, holder.count));
            graph.edges.push(GraphEdge {
                from: resource.clone(),
                to: id,
                kind: EdgeKind::HeldBy,
                count: holder.count,
                confidence: holder.confidence.level,
                in_cycle: false,
            });
        }
        return;
    }
    // A cycle's steps alternate: what is held, who holds it, what they wait for.
    let steps = finding.cycle.len();
    let lock = |i: usize| format!("c:{}:{}", finding.id, i % steps);
    for (i, step) in finding.cycle.iter().enumerate() {
        let id = format!("h:{}:{i}", finding.id);
        let label = step.goroutine.map_or_else(
            || step.frame.clone(),
            |g| format!("goroutine {g} in {}", step.frame),
        );
        graph
            .nodes
            .push(node(&lock(i), NodeKind::Resource, step.holds.clone(), 0));
        graph.nodes.push(node(&id, NodeKind::Goroutines, label, 1));
        let edge = |from: String, to: String, kind| GraphEdge {
            from,
            to,
            kind,
            count: 1,
            confidence: finding.confidence.level,
            in_cycle: true,
        };
        graph
            .edges
            .push(edge(lock(i), id.clone(), EdgeKind::HeldBy));
        graph.edges.push(edge(id, lock(i + 1), EdgeKind::WaitsFor));
    }
    graph.edges.push(GraphEdge {
        from: resource,
        to: lock(0),
        kind: EdgeKind::WaitsFor,
        count: finding.waiters.total,
        confidence: finding.confidence.level,
        in_cycle: false,
    });
}
