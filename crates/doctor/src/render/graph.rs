//! The wait-for graph as SVG: who waits on the left, what for in the middle, who holds it on the
//! right; what leads back is a cycle.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::html::escape;
use crate::figures::{count, many};
use crate::report::{EdgeKind, GraphEdge, GraphNode, Level, NodeKind, WaitGraph};

const MOST_RESOURCES: usize = 10;
/// Waiters or holders shown at one resource; the rest is one line of text.
const MOST_AROUND: usize = 8;
const BOX: (f64, f64) = (270.0, 46.0);
const GAP: (f64, f64) = (110.0, 16.0);
const MARGIN: f64 = 14.0;
/// Characters that fit a box.
const FITS: usize = 36;

struct Placed<'a> {
    node: &'a GraphNode,
    layer: usize,
    x: f64,
    y: f64,
}

/// Nothing where there is nothing to draw.
pub(super) fn svg(graph: &WaitGraph) -> Option<String> {
    let (nodes, edges, left_out) = choose(graph);
    if nodes.is_empty() {
        return None;
    }
    let placed = place(&nodes, &edges);
    let width = placed.iter().map(|p| p.x + BOX.0).fold(0.0, f64::max) + MARGIN;
    let back = edges.iter().any(|(from, to, _)| placed[*to].layer <= placed[*from].layer);
    let height = placed.iter().map(|p| p.y + BOX.1).fold(0.0, f64::max) + MARGIN + if back { 70.0 } else { 0.0 };
    let mut out = format!(
        "<svg class=\"graph\" viewBox=\"0 0 {width:.0} {height:.0}\" style=\"max-width:{width:.0}px\" role=\"img\" aria-label=\"who waits for whom\">\n\
         <defs>{}{}{}</defs>\n",
        arrow("wait"),
        arrow("held"),
        arrow("ring")
    );
    for (from, to, edge) in &edges {
        draw_edge(&mut out, &placed[*from], &placed[*to], edge, height);
    }
    for p in &placed {
        draw_node(&mut out, p);
    }
    out.push_str("</svg>\n");
    if left_out > 0 {
        let _ = writeln!(out, "<p class=\"quiet\">{} not drawn</p>", many(left_out as u64, "smaller node", "smaller nodes"));
    }
    Some(out)
}

fn arrow(class: &str) -> String {
    format!(
        "<marker id=\"to-{class}\" class=\"{class}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\"/></marker>"
    )
}

type Edges<'a> = Vec<(usize, usize, &'a GraphEdge)>;

/// The largest resources, and around each the largest groups.
fn choose(graph: &WaitGraph) -> (Vec<&GraphNode>, Edges<'_>, usize) {
    let mut resources: Vec<&GraphNode> =
        graph.nodes.iter().filter(|n| n.kind == NodeKind::Resource).collect();
    resources.sort_by_key(|n| (std::cmp::Reverse(n.count), n.id.clone()));
    let in_cycle = |n: &GraphNode| {
        graph.edges.iter().any(|e| e.in_cycle && (e.from == n.id || e.to == n.id))
    };
    resources.sort_by_key(|n| !in_cycle(n));
    resources.truncate(MOST_RESOURCES);
    let by_id: HashMap<&str, &GraphNode> =
        graph.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let mut nodes: Vec<&GraphNode> = resources.clone();
    for resource in &resources {
        for kind in [EdgeKind::WaitsFor, EdgeKind::HeldBy] {
            let mut around: Vec<&GraphEdge> = graph
                .edges
                .iter()
                .filter(|e| e.kind == kind)
                .filter(|e| if kind == EdgeKind::WaitsFor { e.to == resource.id } else { e.from == resource.id })
                .collect();
            around.sort_by_key(|e| (!e.in_cycle, e.confidence, std::cmp::Reverse(e.count)));
            for edge in around.into_iter().take(MOST_AROUND) {
                let other = if kind == EdgeKind::WaitsFor { &edge.from } else { &edge.to };
                if let Some(node) = by_id.get(other.as_str())
                    && !nodes.iter().any(|n| n.id == node.id)
                {
                    nodes.push(node);
                }
            }
        }
    }
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(i, n)| (n.id.as_str(), i)).collect();
    let edges = graph
        .edges
        .iter()
        .filter_map(|e| Some((*index.get(e.from.as_str())?, *index.get(e.to.as_str())?, e)))
        .collect();
    let left_out = graph.nodes.len() - nodes.len();
    (nodes, edges, left_out)
}

/// Layers from left to right along the edges, those that lead back left aside.
fn place<'a>(nodes: &[&'a GraphNode], edges: &Edges<'_>) -> Vec<Placed<'a>> {
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut before = vec![0_usize; nodes.len()];
    for (from, to, _) in edges {
        after[*from].push(*to);
        before[*to] += 1;
    }
    // Where nothing comes before, a layer begins; a ring has no such place, so it is cut anywhere.
    let mut starts: Vec<usize> = (0..nodes.len()).collect();
    starts.sort_by_key(|n| before[*n] > 0);
    let mut layer = vec![0_usize; nodes.len()];
    let mut state = vec![0_u8; nodes.len()];
    let mut order = Vec::new();
    for start in starts {
        if state[start] == 0 {
            visit(start, &after, &mut state, &mut order);
        }
    }
    order.reverse();
    let rank: HashMap<usize, usize> = order.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    for node in &order {
        for next in &after[*node] {
            if rank[next] > rank[node] {
                layer[*next] = layer[*next].max(layer[*node] + 1);
            }
        }
    }
    let layers = layer.iter().max().map_or(0, |l| l + 1);
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); layers];
    for (node, layer) in layer.iter().enumerate() {
        columns[*layer].push(node);
    }
    let tallest = columns.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let full = tallest * (BOX.1 + GAP.1);
    let mut y = vec![0.0; nodes.len()];
    for (depth, column) in columns.iter_mut().enumerate() {
        if depth == 0 {
            column.sort_by_key(|n| {
                let target = after[*n].first().map_or(usize::MAX, |t| rank[t]);
                (target, std::cmp::Reverse(nodes[*n].count))
            });
        } else {
            // Near to what leads there.
            let near = |n: usize| {
                let (sum, many) = edges.iter().filter(|(from, to, _)| *to == n && layer[*from] < depth).fold((0.0, 0.0), |(s, m), (from, _, _)| (s + y[*from], m + 1.0));
                if many > 0.0 { sum / many } else { 0.0 }
            };
            let mut keyed: Vec<(f64, usize)> = column.iter().map(|n| (near(*n), *n)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            *column = keyed.into_iter().map(|(_, n)| n).collect();
        }
        let used = column.len() as f64 * (BOX.1 + GAP.1);
        let top = MARGIN + (full - used) / 2.0;
        for (row, node) in column.iter().enumerate() {
            y[*node] = top + row as f64 * (BOX.1 + GAP.1);
        }
    }
    nodes
        .iter()
        .enumerate()
        .map(|(i, node)| Placed { node, layer: layer[i], x: MARGIN + layer[i] as f64 * (BOX.0 + GAP.0), y: y[i] })
        .collect()
}

/// Depth first, deepest first; bounded by the few dozen nodes that are drawn.
fn visit(node: usize, after: &[Vec<usize>], state: &mut [u8], order: &mut Vec<usize>) {
    state[node] = 1;
    for next in &after[node] {
        if state[*next] == 0 {
            visit(*next, after, state, order);
        }
    }
    order.push(node);
}

fn draw_edge(out: &mut String, from: &Placed<'_>, to: &Placed<'_>, edge: &GraphEdge, bottom: f64) {
    let class = match edge.kind {
        _ if edge.in_cycle => "ring",
        EdgeKind::WaitsFor => "wait",
        EdgeKind::HeldBy => "held",
    };
    let dash = if edge.kind == EdgeKind::HeldBy && edge.confidence != Level::Certain { " stroke-dasharray=\"6 4\"" } else { "" };
    let wide = 1.2 + (edge.count.max(1) as f64).log10() * 0.7;
    let (y1, y2) = (from.y + BOX.1 / 2.0, to.y + BOX.1 / 2.0);
    let path = if to.layer > from.layer {
        let (x1, x2) = (from.x + BOX.0, to.x);
        let bend = (x2 - x1) / 2.0;
        format!("M{x1:.0} {y1:.0}C{:.0} {y1:.0} {:.0} {y2:.0} {x2:.0} {y2:.0}", x1 + bend, x2 - bend)
    } else {
        // Back under everything else.
        let (x1, x2) = (from.x + BOX.0 / 2.0, to.x + BOX.0 / 2.0);
        let low = bottom - 12.0;
        let (y1, y2) = (from.y + BOX.1, to.y + BOX.1);
        format!("M{x1:.0} {y1:.0}C{x1:.0} {low:.0} {x2:.0} {low:.0} {x2:.0} {y2:.0}")
    };
    let verb = match edge.kind {
        EdgeKind::WaitsFor => "waits for",
        EdgeKind::HeldBy => "is held by",
    };
    let title = escape(&format!("{} {verb} {} ({})", from.node.label, to.node.label, count(edge.count)));
    let _ = writeln!(
        out,
        "<path class=\"edge {class}\" d=\"{path}\" stroke-width=\"{wide:.1}\"{dash} marker-end=\"url(#to-{class})\"><title>{title}</title></path>"
    );
}

fn draw_node(out: &mut String, p: &Placed<'_>) {
    let class = match p.node.kind {
        NodeKind::Resource => "resource",
        NodeKind::Goroutines => "goroutines",
    };
    let radius = if p.node.kind == NodeKind::Resource { 4.0 } else { BOX.1 / 2.0 };
    let second = match p.node.kind {
        NodeKind::Resource if p.node.count > 0 => format!("{} waiting", count(p.node.count)),
        NodeKind::Resource => String::new(),
        NodeKind::Goroutines => many(p.node.count, "goroutine", "goroutines"),
    };
    let middle = p.x + BOX.0 / 2.0;
    let _ = writeln!(
        out,
        "<g class=\"{class}\"><title>{}</title><rect x=\"{:.0}\" y=\"{:.0}\" width=\"{:.0}\" height=\"{:.0}\" rx=\"{radius:.0}\"/>\
         <text x=\"{middle:.0}\" y=\"{:.0}\">{}</text><text class=\"small\" x=\"{middle:.0}\" y=\"{:.0}\">{}</text></g>",
        escape(&p.node.label),
        p.x,
        p.y,
        BOX.0,
        BOX.1,
        p.y + 20.0,
        escape(&fit(&p.node.label)),
        p.y + 36.0,
        escape(&second),
    );
}

/// The end of a long name says more than its beginning.
fn fit(label: &str) -> String {
    let length = label.chars().count();
    if length <= FITS {
        return label.to_owned();
    }
    let from = label.char_indices().nth(length - FITS + 1).map_or(0, |(at, _)| at);
    format!("…{}", &label[from..])
}
