/** A line over time, in SVG of our own: forty lines are less than a library. */
import { useState } from "preact/hooks";
import { locale, t } from "../language";
import { linePath, niceTop, type Point } from "./chart-path";

const [WIDTH, HEIGHT] = [600, 120];

export function Chart({ title, points, from, to, say }: { title: string; points: Point[]; from: number; to: number; say: (value: number) => string }) {
  const [at, setAt] = useState<number | null>(null);
  const top = niceTop(Math.max(0, ...points.map(([, value]) => value)));
  const gap = (to - from) / 20;
  const line = linePath(points, from, to, top, WIDTH, HEIGHT, gap);
  const wanted = at === null ? null : from + at * (to - from);
  const near = wanted === null ? undefined : points.reduce<Point | undefined>((best, one) => (!best || Math.abs(one[0] - wanted) < Math.abs(best[0] - wanted) ? one : best), undefined);
  const last = points.at(-1);
  const time = (seconds: number) => new Date(seconds * 1000).toLocaleString(locale, to - from > 86_400 ? { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" } : { hour: "2-digit", minute: "2-digit" });
  return (
    <figure class="chart">
      <figcaption>
        <strong class="grow">{title}</strong>
        <span class="number muted">{near ? t("{say} at {time}", { say: say(near[1]), time: time(near[0]) }) : last ? say(last[1]) : t("nothing was measured")}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${last ? t("{say} now, at most {say2}", { say: say(last[1]), say2: say(Math.max(...points.map(([, value]) => value))) }) : t("nothing was measured")}`}
        onMouseMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          setAt((event.clientX - box.left) / box.width);
        }}
        onMouseLeave={() => setAt(null)}
      >
        {[0.5, 1].map((part) => <line key={part} class="grid" x1={0} x2={WIDTH} y1={HEIGHT - part * HEIGHT} y2={HEIGHT - part * HEIGHT} />)}
        <path class="line" d={line} />
        {near && <line class="at" x1={((near[0] - from) / (to - from)) * WIDTH} x2={((near[0] - from) / (to - from)) * WIDTH} y1={0} y2={HEIGHT} />}
      </svg>
      <p class="axis faint small number"><span>{time(from)}</span><span>{t("0 to {say}", { say: say(top) })}</span><span>{time(to)}</span></p>
    </figure>
  );
}
