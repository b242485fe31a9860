//! The wait-for graph as SVG: who waits on the left, what for in the middle, who holds it on the
//! right; what leads back is a cycle.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::html::escape;
use crate::figures::{count, many};
use crate::report::{EdgeKind, GraphEdge, GraphNode, Level, NodeKind, WaitGraph};

const MOST_RESOURCES: usize = 10;
/// Waiters or holders shown at one resource.
const MOST_AROUND: usize = 8;
/// Height of a box, and of the gap under it.
const TALL: f64 = 46.0;
const APART: f64 = 16.0;
const MARGIN: f64 = 14.0;
/// Room under the boxes for edges that lead back.
const BACK: f64 = 56.0;

/// How wide things are: a long chain gets narrower boxes.
#[derive(Clone, Copy)]
struct Widths {
    node: f64,
    gap: f64,
    /// Characters that fit a box.
    fits: usize,
}

const ROOMY: Widths = Widths {
    node: 270.0,
    gap: 110.0,
    fits: 34,
};
const NARROW: Widths = Widths {
    node: 196.0,
    gap: 44.0,
    fits: 25,
};

struct Placed<'a> {
    node: &'a GraphNode,
    layer: usize,
    x: f64,
    y: f64,
    widths: Widths,
}

/// One picture for each set of nodes that hang together, with the finding that most of it belongs
/// to. Empty where there is nothing to draw.
pub(super) fn svgs(graph: &WaitGraph) -> Vec<(Option<&str>, String)> {
    let (nodes, edges) = choose(graph);
    let mut pictures: Vec<(usize, Option<&str>, String)> = Vec::new();
    for part in parts(nodes.len(), &edges) {
        // What nobody waits for and nobody holds is no picture.
        if part.len() < 2 {
            continue;
        }
        let at: HashMap<usize, usize> = part.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let own: Vec<&GraphNode> = part.iter().map(|n| nodes[*n]).collect();
        let links: Edges<'_> = edges
            .iter()
            .filter_map(|(from, to, edge)| Some((*at.get(from)?, *at.get(to)?, *edge)))
            .collect();
        let finding = own
            .iter()
            .filter(|n| n.kind == NodeKind::Resource)
            .max_by_key(|n| n.count);
        pictures.push((
            part[0],
            finding.and_then(|n| n.finding.as_deref()),
            picture(&own, &links),
        ));
    }
    pictures.sort_by_key(|(first, ..)| *first);
    pictures
        .into_iter()
        .map(|(_, finding, svg)| (finding, svg))
        .collect()
}

fn picture(nodes: &[&GraphNode], edges: &Edges<'_>) -> String {
    let placed = place(nodes, edges);
    let width = placed
        .iter()
        .map(|p| p.x + p.widths.node)
        .fold(0.0, f64::max)
        + MARGIN;
    let back = edges
        .iter()
        .any(|(from, to, _)| placed[*to].layer <= placed[*from].layer);
    let below = MARGIN + if back { BACK } else { 0.0 };
    let height = placed.iter().map(|p| p.y + TALL).fold(0.0, f64::max) + below;
    let mut out = format!(
        "<svg class=\"graph\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"who waits for whom\">\n\
         <defs>{}{}{}</defs>\n",
        arrow("wait"),
        arrow("held"),
        arrow("ring")
    );
    for (from, to, edge) in edges {
        draw_edge(&mut out, &placed[*from], &placed[*to], edge, height);
    }
    for p in &placed {
        draw_node(&mut out, p);
    }
    out.push_str("</svg>\n");
    out
}

/// Nodes that hang together, in the order of their first.
fn parts(nodes: usize, edges: &Edges<'_>) -> Vec<Vec<usize>> {
    let mut part: Vec<usize> = (0..nodes).collect();
    // A few dozen nodes: each round joins at least one, or nothing is left to join.
    loop {
        let mut joined = false;
        for (from, to, _) in edges {
            let low = part[*from].min(part[*to]);
            joined |= part[*from] != low || part[*to] != low;
            (part[*from], part[*to]) = (low, low);
        }
        if !joined {
            break;
        }
    }
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (node, part) in part.into_iter().enumerate() {
        parts[part].push(node);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn arrow(class: &str) -> String {
    format!(
        "<marker id=\"to-{class}\" class=\"{class}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\"/></marker>"
    )
}

type Edges<'a> = Vec<(usize, usize, &'a GraphEdge)>;

/// The largest resources, and around each the largest groups.
fn choose(graph: &WaitGraph) -> (Vec<&GraphNode>, Edges<'_>) {
    let mut resources: Vec<&GraphNode> = graph
        .nodes
        .iter()
        .filter(|n| n.kind == NodeKind::Resource)
        .collect();
    resources.sort_by_key(|n| (std::cmp::Reverse(n.count), n.id.clone()));
    let in_cycle = |n: &GraphNode| {
        graph
            .edges
            .iter()
            .any(|e| e.in_cycle && (e.from == n.id || e.to == n.id))
    };
    resources.sort_by_key(|n| !in_cycle(n));
    resources.truncate(MOST_RESOURCES);
    let by_id: HashMap<&str, &GraphNode> = graph.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let mut nodes: Vec<&GraphNode> = resources.clone();
    for resource in &resources {
        for kind in [EdgeKind::WaitsFor, EdgeKind::HeldBy] {
            let mut around: Vec<&GraphEdge> = graph
                .edges
                .iter()
                .filter(|e| e.kind == kind)
                .filter(|e| {
                    if kind == EdgeKind::WaitsFor {
                        e.to == resource.id
                    } else {
                        e.from == resource.id
                    }
                })
                .collect();
            around.sort_by_key(|e| (!e.in_cycle, e.confidence, std::cmp::Reverse(e.count)));
            for edge in around.into_iter().take(MOST_AROUND) {
                let other = if kind == EdgeKind::WaitsFor {
                    &edge.from
                } else {
                    &edge.to
                };
                if let Some(node) = by_id.get(other.as_str())
                    && !nodes.iter().any(|n| n.id == node.id)
                {
                    nodes.push(node);
                }
            }
        }
    }
    let index: HashMap<&str, usize> = nodes
        .iter()
        .enumerate()
        .map(|(i, n)| (n.id.as_str(), i))
        .collect();
    let edges = graph
        .edges
        .iter()
        .filter_map(|e| Some((*index.get(e.from.as_str())?, *index.get(e.to.as_str())?, e)))
        .collect();
    (nodes, edges)
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
    let widths = if layers > 3 { NARROW } else { ROOMY };
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); layers];
    for (node, layer) in layer.iter().enumerate() {
        columns[*layer].push(node);
    }
    let tallest = columns.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let full = tallest * (TALL + APART);
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
                let (sum, many) = edges
                    .iter()
                    .filter(|(from, to, _)| *to == n && layer[*from] < depth)
                    .fold((0.0, 0.0), |(s, m), (from, _, _)| (s + y[*from], m + 1.0));
                if many > 0.0 { sum / many } else { 0.0 }
            };
            let mut keyed: Vec<(f64, usize)> = column.iter().map(|n| (near(*n), *n)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            *column = keyed.into_iter().map(|(_, n)| n).collect();
        }
        let used = column.len() as f64 * (TALL + APART);
        let top = MARGIN + (full - used) / 2.0;
        for (row, node) in column.iter().enumerate() {
            y[*node] = top + row as f64 * (TALL + APART);
        }
    }
    nodes
        .iter()
        .enumerate()
        .map(|(i, node)| Placed {
            node,
            layer: layer[i],
            x: MARGIN + layer[i] as f64 * (widths.node + widths.gap),
            y: y[i],
            widths,
        })
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
    let dash = if edge.kind == EdgeKind::HeldBy && edge.confidence != Level::Certain {
        " stroke-dasharray=\"6 4\""
    } else {
        ""
    };
    let wide = 1.2 + (edge.count.max(1) as f64).log10() * 0.7;
    let (y1, y2) = (from.y + TALL / 2.0, to.y + TALL / 2.0);
    let path = if to.layer > from.layer {
        let (x1, x2) = (from.x + from.widths.node, to.x);
        let bend = (x2 - x1) / 2.0;
        format!(
            "M{x1:.0} {y1:.0}C{:.0} {y1:.0} {:.0} {y2:.0} {x2:.0} {y2:.0}",
            x1 + bend,
            x2 - bend
        )
    } else {
        // Back under everything else.
        let (x1, x2) = (from.x + from.widths.node / 2.0, to.x + to.widths.node / 2.0);
        let low = bottom - 12.0;
        let (y1, y2) = (from.y + TALL, to.y + TALL);
        format!("M{x1:.0} {y1:.0}C{x1:.0} {low:.0} {x2:.0} {low:.0} {x2:.0} {y2:.0}")
    };
    let verb = match edge.kind {
        EdgeKind::WaitsFor => "waits for",
        EdgeKind::HeldBy => "is held by",
    };
    let title = escape(&format!(
        "{} {verb} {} ({})",
        from.node.label,
        to.node.label,
        count(edge.count)
    ));
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
    let radius = if p.node.kind == NodeKind::Resource {
        4.0
    } else {
        TALL / 2.0
    };
    let second = match p.node.kind {
        NodeKind::Resource if p.node.count > 0 => format!("{} waiting", count(p.node.count)),
        NodeKind::Resource => String::new(),
        NodeKind::Goroutines => many(p.node.count, "goroutine", "goroutines"),
    };
    let middle = p.x + p.widths.node / 2.0;
    let _ = writeln!(
        out,
        "<g class=\"{class}\"><title>{}</title><rect x=\"{:.0}\" y=\"{:.0}\" width=\"{:.0}\" height=\"{:.0}\" rx=\"{radius:.0}\"/>\
         <text x=\"{middle:.0}\" y=\"{:.0}\">{}</text><text class=\"small\" x=\"{middle:.0}\" y=\"{:.0}\">{}</text></g>",
        escape(&p.node.label),
        p.x,
        p.y,
        p.widths.node,
        TALL,
        p.y + 20.0,
        escape(&fit(&p.node.label, p.widths.fits)),
        p.y + 36.0,
        escape(&second),
    );
}

/// A long name loses its middle: its end says most, its beginning what it is.
fn fit(label: &str, fits: usize) -> String {
    let length = label.chars().count();
    if length <= fits {
        return label.to_owned();
    }
    let head = fits / 3;
    let at = |n: usize| {
        label
            .char_indices()
            .nth(n)
            .map_or(label.len(), |(at, _)| at)
    };
    format!(
        "{}…{}",
        &label[..at(head)],
        &label[at(length - (fits - head - 1))..]
    )
}
