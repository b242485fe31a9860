//! Cycles in who waits for whom.

/// An edge: the lock `from` may be held by `holder`, who waits for the lock `to`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Index of the candidate among those of `from`.
    pub(super) holder: usize,
}

/// A shortest cycle of each strongly connected set, as edges in order.
pub(super) fn cycles(nodes: usize, edges: &[Edge]) -> Vec<Vec<Edge>> {
    let mut next: Vec<Vec<Edge>> = vec![Vec::new(); nodes];
    for edge in edges {
        next[edge.from].push(*edge);
    }
    let component = components(&next);
    let mut done = vec![false; nodes];
    let mut cycles = Vec::new();
    for start in 0..nodes {
        if done[component[start]] {
            continue;
        }
        if let Some(cycle) = shortest(start, &next, &component) {
            done[component[start]] = true;
            cycles.push(cycle);
        }
    }
    cycles
}

/// Tarjan's strongly connected components, without recursion: a chain may be long.
fn components(next: &[Vec<Edge>]) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let n = next.len();
    let (mut order, mut low, mut component) = (vec![UNSEEN; n], vec![0; n], vec![UNSEEN; n]);
    let (mut counter, mut stack) = (0, Vec::new());
    for root in 0..n {
        if order[root] != UNSEEN {
            continue;
        }
        let mut work = vec![(root, 0)];
        while let Some(&mut (node, ref mut i)) = work.last_mut() {
            if *i == 0 {
                (order[node], low[node]) = (counter, counter);
                counter += 1;
                stack.push(node);
            }
            if let Some(edge) = next[node].get(*i) {
                *i += 1;
                let to = edge.to;
                if order[to] == UNSEEN {
                    work.push((to, 0));
                } else if component[to] == UNSEEN {
                    low[node] = low[node].min(order[to]);
                }
                continue;
            }
            work.pop();
            if let Some(&(parent, _)) = work.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] == order[node] {
                while let Some(member) = stack.pop() {
                    component[member] = node;
                    if member == node {
                        break;
                    }
                }
            }
        }
    }
    component
}

/// A shortest way from a node back to itself inside its component.
fn shortest(start: usize, next: &[Vec<Edge>], component: &[usize]) -> Option<Vec<Edge>> {
    let mut came: Vec<Option<Edge>> = vec![None; next.len()];
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for edge in &next[node] {
            if component[edge.to] != component[start] {
                continue;
            }
            if edge.to == start {
                let mut path = vec![*edge];
                let mut at = node;
                while at != start {
                    let edge = came[at]?;
                    path.push(edge);
                    at = edge.from;
                }
                path.reverse();
                return Some(path);
            }
            if came[edge.to].is_none() {
                came[edge.to] = Some(*edge);
                queue.push_back(edge.to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Edge, cycles};

    fn edges(pairs: &[(usize, usize)]) -> Vec<Edge> {
        pairs
            .iter()
            .map(|&(from, to)| Edge {
                from,
                to,
                holder: 0,
            })
            .collect()
    }

    fn found(nodes: usize, pairs: &[(usize, usize)]) -> Vec<Vec<usize>> {
        cycles(nodes, &edges(pairs))
            .iter()
            .map(|c| c.iter().map(|e| e.from).collect())
            .collect()
    }

    #[test]
    fn a_chain_is_no_cycle() {
        assert!(found(4, &[(0, 1), (1, 2), (2, 3), (0, 3)]).is_empty());
    }

    #[test]
    fn each_strongly_connected_set_gives_its_shortest_cycle_once() {
        assert_eq!(
            found(6, &[(0, 1), (1, 2), (2, 0), (1, 0), (2, 3), (4, 5), (5, 4)]),
            [vec![0, 1], vec![4, 5]]
        );
    }

    #[test]
    fn a_long_chain_does_not_exhaust_the_stack() {
        let pairs: Vec<_> = (0..200_000).map(|i| (i, (i + 1) % 200_000)).collect();
        assert_eq!(found(200_000, &pairs)[0].len(), 200_000);
    }
}
