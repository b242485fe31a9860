/** The numbers of a chart: a nice top, and the line through the points. */
export type Point = [time: number, value: number];

/** The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `value`. */
export function niceTop(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 2.5, 5, 10].find((step) => step * power >= value) ?? 10) * power;
}

/** A path of SVG. Where points are further apart than `gap`, nothing was measured, and nothing is drawn. */
export function linePath(points: Point[], from: number, to: number, top: number, width: number, height: number, gap: number): string {
  let [path, last] = ["", -Infinity];
  for (const [time, value] of points) {
    const x = ((time - from) / (to - from)) * width;
    const y = height - (Math.min(value, top) / top) * height;
    path += `${time - last > gap ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    last = time;
  }
  return path;
}
