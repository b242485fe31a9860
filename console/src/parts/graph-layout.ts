/**
 * Where the nodes of a graph stand: those with a line between them are drawn together, all push each other
 * apart, and groups (namespaces, applications) keep to themselves. Plain numbers in and out, so that a worker can do it.
 */
export interface LayoutInput {
  /** The group that each node keeps to, by number. */
  clusters: number[];
  /** Pairs of nodes, and how strongly each pair is drawn together. */
  edges: { from: number; to: number; weight: number }[];
}

/** A repeatable sequence of numbers: the same graph is drawn the same way. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

const APART = 60;

/**
 * Positions, x and y in turn. Each round costs a little more than the nodes and edges that there are:
 * only neighbours in a grid push each other.
 */
export function layout({ clusters, edges }: LayoutInput, rounds = 160): Float32Array {
  const count = clusters.length;
  const at = new Float32Array(count * 2);
  const next = random(7);
  const groups = new Set(clusters).size;
  const radius = APART * Math.sqrt(count) * 0.9;
  for (let node = 0; node < count; node++) {
    const angle = (2 * Math.PI * (clusters[node] as number)) / Math.max(1, groups);
    at[node * 2] = Math.cos(angle) * radius + (next() - 0.5) * APART * 4;
    at[node * 2 + 1] = Math.sin(angle) * radius + (next() - 0.5) * APART * 4;
  }
  const move = new Float32Array(count * 2);
  for (let round = 0; round < rounds; round++) {
    const heat = 1 - round / rounds;
    move.fill(0);
    push(at, move, count);
    pull(at, move, edges);
    gather(at, move, clusters, groups);
    const most = 30 * heat + 1;
    for (let index = 0; index < count; index++) {
      const [x, y] = [move[index * 2] as number, move[index * 2 + 1] as number];
      const length = Math.hypot(x, y);
      if (length === 0) continue;
      const step = Math.min(length, most) / length;
      at[index * 2] = (at[index * 2] as number) + x * step;
      at[index * 2 + 1] = (at[index * 2 + 1] as number) + y * step;
    }
  }
  return at;
}

/** Nodes in the same or a neighbouring cell push each other apart. */
function push(at: Float32Array, move: Float32Array, count: number): void {
  const side = APART * 2;
  const cells = new Map<string, number[]>();
  const cell = (value: number) => Math.floor(value / side);
  for (let index = 0; index < count; index++) {
    const key = `${cell(at[index * 2] as number)} ${cell(at[index * 2 + 1] as number)}`;
    const there = cells.get(key);
    if (there) there.push(index);
    else cells.set(key, [index]);
  }
  for (let index = 0; index < count; index++) {
    const [x, y] = [at[index * 2] as number, at[index * 2 + 1] as number];
    for (let dx = -1; dx <= 1; dx++) {
      for (let dy = -1; dy <= 1; dy++) {
        for (const other of cells.get(`${cell(x) + dx} ${cell(y) + dy}`) ?? []) {
          if (other === index) continue;
          const [ox, oy] = [x - (at[other * 2] as number), y - (at[other * 2 + 1] as number)];
          const distance = Math.max(1, Math.hypot(ox, oy));
          if (distance >= side) continue;
          const force = ((APART * APART) / distance) * 0.06;
          move[index * 2] = (move[index * 2] as number) + (ox / distance) * force;
          move[index * 2 + 1] = (move[index * 2 + 1] as number) + (oy / distance) * force;
        }
      }
    }
  }
}

function pull(at: Float32Array, move: Float32Array, edges: LayoutInput["edges"]): void {
  for (const { from, to, weight } of edges) {
    const x = (at[to * 2] as number) - (at[from * 2] as number);
    const y = (at[to * 2 + 1] as number) - (at[from * 2 + 1] as number);
    const distance = Math.hypot(x, y);
    if (distance < APART) continue;
    const force = 0.02 * weight;
    for (const [node, sign] of [[from, 1], [to, -1]] as const) {
      move[node * 2] = (move[node * 2] as number) + x * force * sign;
      move[node * 2 + 1] = (move[node * 2 + 1] as number) + y * force * sign;
    }
  }
}

/** Each node is drawn to the middle of its own group, and all a little to the middle. */
function gather(at: Float32Array, move: Float32Array, clusters: number[], groups: number): void {
  const sums = new Float32Array(groups * 3);
  clusters.forEach((group, index) => {
    sums[group * 3] = (sums[group * 3] as number) + (at[index * 2] as number);
    sums[group * 3 + 1] = (sums[group * 3 + 1] as number) + (at[index * 2 + 1] as number);
    sums[group * 3 + 2] = (sums[group * 3 + 2] as number) + 1;
  });
  clusters.forEach((group, index) => {
    const size = Math.max(1, sums[group * 3 + 2] as number);
    for (const axis of [0, 1]) {
      const here = at[index * 2 + axis] as number;
      const middle = (sums[group * 3 + axis] as number) / size;
      move[index * 2 + axis] = (move[index * 2 + axis] as number) + (middle - here) * 0.05 - here * 0.004;
    }
  });
}
