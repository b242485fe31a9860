/** Lays graphs out away from the page, which goes on scrolling meanwhile. */
import { layout, type LayoutInput } from "./graph-layout";

onmessage = ({ data }: MessageEvent<LayoutInput & { number: number }>) => {
  const { clusters, edges, number } = data;
  // Large graphs get fewer rounds: the first look matters more than the last pixel.
  const rounds = Math.max(40, Math.min(200, Math.round(400_000 / Math.max(1, clusters.length + edges.length))));
  const at = layout({ clusters, edges }, rounds);
  postMessage({ number, at }, { transfer: [at.buffer] });
};
