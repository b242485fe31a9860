/** A graph on a canvas: thousands of nodes are drawn at once, and only when something changes. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { t } from "../language";
import { dark } from "../theme";
import type { LayoutInput } from "./graph-layout";
import "./graph.css";
import { Loading } from "./problem";

export interface GraphNode {
  name: string;
  /** Said beside the name when it is pointed at. */
  note: string;
  tone: "" | "bad" | "warn" | "faint";
  /** How much larger than one thing it is drawn; 1 unless it stands for many. */
  size?: number;
}

export interface GraphEdge {
  from: number;
  to: number;
  /** 0 to 3. */
  width: number;
  bad?: boolean;
}

export interface Graph {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

interface Props {
  graph: Graph;
  /** x and y of each node, in turn; null while they are not known. */
  places: Float32Array | null;
  /** Nodes that are to be seen; none of them: all are. */
  lit: Set<number>;
  /** What is drawn, for who does not see it. */
  label: string;
  onChoose: (node: number | null) => void;
}

interface View {
  x: number;
  y: number;
  scale: number;
}

/** Of a node, in pixels; as long as there are not more of them than a crowd. */
const RADIUS = 4.5;
const CROWD = 300;
const TAU = Math.PI * 2;
/** Of a line of 11 pixels, with room. */
const NAME_HEIGHT = 12;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function fit(places: Float32Array, width: number, height: number): View {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let index = 0; index < places.length; index += 2) {
    const [x, y] = [places[index] as number, places[index + 1] as number];
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  // Room for names, which are written in the middle below.
  const scale = Math.min(2.5, (width - 140) / Math.max(1, right - left), (height - 60) / Math.max(1, bottom - top));
  return { scale, x: width / 2 - ((left + right) / 2) * scale, y: height / 2 - ((top + bottom) / 2) * scale };
}

export function GraphCanvas({ graph, places, lit, label, onChoose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [view, setView] = useState<View | null>(null);
  const [under, setUnder] = useState<number | null>(null);
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);

  useLayoutEffect(() => {
    const box = canvas.current?.parentElement;
    if (!box) return;
    const measure = () => setSize({ width: box.clientWidth, height: box.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (places && size.width) setView(fit(places, size.width, size.height));
  }, [places, size.width, size.height]);

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !places || !view) return;
    const frame = requestAnimationFrame(() => draw(context, graph, places, view, lit, under, size));
    return () => cancelAnimationFrame(frame);
  }, [graph, places, view, lit, under, size, dark.value]);

  const nodeAt = (event: MouseEvent): number | null => {
    if (!places || !view || !canvas.current) return null;
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left - view.x) / view.scale, (event.clientY - box.top - view.y) / view.scale];
    let [best, nearest] = [null as number | null, 14 / view.scale];
    for (let index = 0; index < graph.nodes.length; index++) {
      const distance = Math.hypot((places[index * 2] as number) - x, (places[index * 2 + 1] as number) - y);
      if (distance < nearest) [best, nearest] = [index, distance];
    }
    return best;
  };
  const zoom = (factor: number, x: number, y: number) =>
    setView((old) => old && { scale: Math.min(8, Math.max(0.02, old.scale * factor)), x: x - (x - old.x) * factor, y: y - (y - old.y) * factor });
  const name = under === null ? undefined : graph.nodes[under];
  return (
    <div class="graph">
      <canvas
        ref={canvas}
        role="img"
        aria-label={label}
        width={size.width * devicePixelRatio}
        height={size.height * devicePixelRatio}
        style={{ width: `${size.width}px`, height: `${size.height}px`, cursor: under === null ? "grab" : "pointer" }}
        onWheel={(event) => {
          event.preventDefault();
          const box = event.currentTarget.getBoundingClientRect();
          zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.clientX - box.left, event.clientY - box.top);
        }}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (!from) return setUnder(nodeAt(event));
          const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
          if (!from.moved && Math.hypot(dx, dy) < 4) return;
          drag.current = { x: event.clientX, y: event.clientY, moved: true };
          setView((old) => old && { ...old, x: old.x + dx, y: old.y + dy });
        }}
        onPointerUp={(event) => {
          if (!drag.current?.moved) onChoose(nodeAt(event));
          drag.current = null;
        }}
        onPointerLeave={() => setUnder(null)}
      />
      {!places && <div class="wait"><Loading lines={3} label={t("The graph is laid out")} /></div>}
      <div class="tools">
        <button type="button" class="button icon" aria-label={t("Closer")} onClick={() => zoom(1.3, size.width / 2, size.height / 2)}>+</button>
        <button type="button" class="button icon" aria-label={t("Farther")} onClick={() => zoom(1 / 1.3, size.width / 2, size.height / 2)}>−</button>
        <button type="button" class="button" onClick={() => places && setView(fit(places, size.width, size.height))}>{t("All")}</button>
      </div>
      {name && <p class="under">{name.name} <span class="muted">{name.note}</span></p>}
    </div>
  );
}

function draw(context: CanvasRenderingContext2D, graph: Graph, places: Float32Array, view: View, lit: Set<number>, under: number | null, size: { width: number; height: number }): void {
  const [text, faint, line, accent, bad, warn, ground] = ["--text", "--faint", "--muted", "--accent", "--bad", "--warn", "--panel"].map(colour) as [string, string, string, string, string, string, string];
  const tones = { "": text, bad, warn, faint };
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  const x = (node: number) => (places[node * 2] as number) * view.scale + view.x;
  const y = (node: number) => (places[node * 2 + 1] as number) * view.scale + view.y;
  const seen = (node: number) => x(node) > -40 && x(node) < size.width + 40 && y(node) > -40 && y(node) < size.height + 40;
  const focus = under === null ? lit : new Set([under]);
  // Thousands of nodes are points from afar, and grow as one comes closer: none hides another.
  const crowd = Math.min(1, Math.max(Math.sqrt(CROWD / Math.max(1, graph.nodes.length)), view.scale));
  const isOn = (edge: GraphEdge) => !focus.size || focus.has(edge.from) || focus.has(edge.to);
  const near = new Set(focus);
  graph.edges.forEach((edge) => {
    if (focus.has(edge.from)) near.add(edge.to);
    if (focus.has(edge.to)) near.add(edge.from);
  });
  for (const strong of [false, true]) {
    for (const edge of graph.edges) {
      if ((focus.size > 0 && isOn(edge)) !== strong && focus.size > 0) continue;
      if (!focus.size && strong) continue;
      if (!seen(edge.from) && !seen(edge.to)) continue;
      context.strokeStyle = edge.bad ? bad : strong ? accent : line;
      context.globalAlpha = strong || !focus.size ? (edge.bad ? 0.95 : 0.5) : 0.1;
      context.lineWidth = 0.6 + edge.width;
      context.beginPath();
      context.moveTo(x(edge.from), y(edge.from));
      context.lineTo(x(edge.to), y(edge.to));
      context.stroke();
    }
  }
  const labels = view.scale > 0.55 || graph.nodes.length < 80;
  context.font = "11px ui-sans-serif, system-ui, sans-serif";
  context.textAlign = "center";
  graph.nodes.forEach((node, index) => {
    if (!seen(index)) return;
    const on = !focus.size || near.has(index);
    context.globalAlpha = on ? 1 : 0.25;
    context.fillStyle = focus.has(index) ? accent : tones[node.tone];
    const radius = RADIUS * crowd * (node.size ?? 1);
    context.beginPath();
    context.arc(x(index), y(index), focus.has(index) ? radius + 1.5 : radius, 0, TAU);
    context.fill();
  });
  // Names below their nodes, or above them where another is in the way. One that has no room at all is left out
  // until somebody comes closer or points at it; those with the most lines have theirs first.
  const lines = new Array<number>(graph.nodes.length).fill(0);
  for (const { from, to } of graph.edges) {
    lines[from] = (lines[from] as number) + 1;
    lines[to] = (lines[to] as number) + 1;
  }
  const named = graph.nodes.map((_, index) => index).filter((index) => seen(index) && (labels || (focus.size > 0 && near.has(index))));
  named.sort((one, other) => Number(focus.has(other)) - Number(focus.has(one)) || Number(near.has(other)) - Number(near.has(one)) || (lines[other] as number) - (lines[one] as number));
  const taken: { left: number; right: number; line: number }[] = [];
  const isFree = (left: number, right: number, line: number) => !taken.some((other) => left < other.right && right > other.left && Math.abs(line - other.line) < NAME_HEIGHT);
  for (const index of named) {
    const node = graph.nodes[index] as GraphNode;
    const name = node.name.length > 34 ? `${node.name.slice(0, 33)}…` : node.name;
    const radius = RADIUS * crowd * (node.size ?? 1);
    const half = context.measureText(name).width / 2 + 2;
    const [left, right] = [x(index) - half, x(index) + half];
    const at = [y(index) + radius + 12.5, y(index) - radius - 5].find((line) => isFree(left, right, line));
    if (at === undefined && !focus.has(index)) continue;
    const line = at ?? y(index) + radius + 12.5;
    taken.push({ left, right, line });
    context.globalAlpha = !focus.size || near.has(index) ? 1 : 0.25;
    context.lineWidth = 3;
    context.strokeStyle = ground;
    context.strokeText(name, x(index), line);
    context.fillStyle = text;
    context.fillText(name, x(index), line);
  }
  context.globalAlpha = 1;
}

/** Where the nodes stand; none until the worker has answered. A graph of the same shape keeps its places. */
export function usePlaces(shape: string, input: () => LayoutInput): Float32Array | null {
  const [places, setPlaces] = useState<{ shape: string; at: Float32Array } | null>(null);
  const worker = useRef<Worker | null>(null);
  const wanted = useMemo(input, [shape]);
  useEffect(() => () => worker.current?.terminate(), []);
  useEffect(() => {
    worker.current?.terminate();
    const made = new Worker(new URL("./graph-layout-worker.ts", import.meta.url), { type: "module" });
    worker.current = made;
    made.onmessage = ({ data }: MessageEvent<{ at: Float32Array }>) => {
      setPlaces({ shape, at: data.at });
      made.terminate();
    };
    made.postMessage({ number: 1, ...wanted });
  }, [shape]);
  return places?.shape === shape ? places.at : null;
}
