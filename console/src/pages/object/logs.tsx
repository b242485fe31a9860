/** The log of a pod, or of all pods of a workload: live, searched, downloaded. */
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { path, url } from "../../api/client";
import { useKeys } from "../../keys";
import { locale, t } from "../../language";
import { follow } from "../../live/live";
import type { Subscription } from "../../live/protocol";
import { bodyProblem, ProblemNotice } from "../../parts/problem";
import { NO_NAMESPACE, type ObjectPlace } from "../../places";
import { query, setQuery } from "../../router";
import { containersOf, type KubeObject } from "./kube";
import { LogBuffer } from "./log-buffer";
import type { ProblemBody } from "../../api/schema";

const LINE = 18;
const BEYOND = 12;

const TAILS: [string, string][] = [["", t("Last 1,000 lines")], ["10000", t("Last 10,000 lines")], ["all", t("Everything")]];

export default function Logs({ place, object, selector }: { place: ObjectPlace; object: KubeObject; selector: string | null }) {
  const params = query.value;
  const isPod = place.kind === "pods";
  const containers = containersOf(object).map(({ container }) => container.name);
  const container = params.get("container") ?? (isPod ? (containersOf(object).find(({ init }) => !init)?.container.name ?? "") : "");
  const previous = params.has("previous");
  const times = params.has("times");
  const tail = params.get("tail") ?? "";
  const wanted = params.get("find") ?? "";
  const only = params.has("only");

  const buffer = useRef(new LogBuffer());
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const [ended, setEnded] = useState<{ problem?: ProblemBody } | null>(null);
  const [notices, setNotices] = useState<string[]>([]);
  const [round, setRound] = useState(0);

  const subscription: Subscription = {
    topic: "log",
    cluster: place.cluster,
    namespace: place.namespace ?? NO_NAMESPACE,
    ...(isPod ? { pod: place.name } : { selector }),
    ...(container ? { container } : {}),
    ...(previous ? { previous: true } : { follow: true }),
    ...(tail === "all" ? {} : { tailLines: Number(tail || 1000) }),
  };
  const key = JSON.stringify(subscription);

  useEffect(() => {
    let drawing = 0;
    const draw = () => {
      drawing ||= requestAnimationFrame(() => {
        drawing = 0;
        redraw(0);
      });
    };
    buffer.current = new LogBuffer();
    setEnded(null);
    let begun = false;
    const close = follow(subscription, (message) => {
      if (message.type === "reset" || !begun) {
        // A log begins anew after a lost connection or a hidden tab: what was shown comes again.
        buffer.current = new LogBuffer();
        begun = true;
        setEnded(null);
        setNotices([]);
      }
      if (message.type === "lines") {
        const { lines = [], notices = [] } = message;
        buffer.current.add(lines);
        // Who is heard again needs no notice any more.
        const heard = new Set(lines.map(({ pod, container }) => `${pod}/${container}: `));
        setNotices((old) => (old.length || notices.length ? [...old.filter((one) => ![...heard].some((who) => one.startsWith(who))), ...notices].slice(-5) : old));
      }
      else if (message.type === "end") setEnded(message.problem ? { problem: message.problem } : {});
      draw();
    }, () => { begun = false; });
    draw();
    return () => {
      close();
      cancelAnimationFrame(drawing);
    };
  }, [key, round]);

  const lines = buffer.current;
  const found = useMemo(() => lines.find(wanted), [lines, lines.version, wanted]);
  const [at, setAt] = useState(0);
  const shown = only && wanted ? found : null;
  const count = shown ? shown.length : lines.length;
  const many = !isPod;

  const box = useRef<HTMLDivElement>(null);
  const stick = useRef(true);
  const [range, setRange] = useState({ start: 0, end: 80 });
  const measure = () => {
    const element = box.current;
    if (!element) return;
    const start = Math.max(0, Math.floor(element.scrollTop / LINE) - BEYOND);
    const end = start + Math.ceil(element.clientHeight / LINE) + 2 * BEYOND;
    if (start !== range.start || end !== range.end) setRange({ start, end });
  };
  const scrolled = () => {
    const element = box.current;
    if (element) stick.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 4;
    measure();
  };
  useEffect(() => {
    const element = box.current;
    if (element && stick.current) element.scrollTop = element.scrollHeight;
    measure();
  });
  const jump = (step: number) => {
    if (!found.length) return;
    const next = (at + step + found.length) % found.length;
    setAt(next);
    stick.current = false;
    const line = shown ? next : (found[next] as number);
    if (box.current) box.current.scrollTop = Math.max(0, line * LINE - box.current.clientHeight / 2);
  };
  useKeys([
    { key: "/", does: t("find in the log"), run: () => document.getElementById("log-find")?.focus() },
    { key: "n", does: t("next match"), run: () => jump(1) },
    { key: "N", does: t("previous match"), run: () => jump(-1) },
    { key: "G", does: t("to the end"), run: () => { stick.current = true; redraw(0); } },
  ]);

  const download = isPod
    ? url(path`/clusters/${place.cluster}/resources/pods/${place.name}/log`, { namespace: place.namespace, container, previous: previous || null, timestamps: times || null, download: 1 })
    : url(path`/clusters/${place.cluster}/log`, { namespace: place.namespace, selector: selector ?? "", container, download: 1 });

  const matches = new Set(wanted && !shown ? found : []);
  const drawn = [];
  for (let index = range.start; index < Math.min(count, range.end); index++) {
    const number = shown ? (shown[index] as number) : index;
    const line = lines.at(number);
    if (!line) continue;
    const isAt = found[at] === number && wanted !== "";
    drawn.push(
      <div key={lines.first + number} class={`line${matches.has(number) ? " found" : ""}${isAt ? " at" : ""}`} style={{ transform: `translateY(${index * LINE}px)` }}>
        {times && line.at && <span class="when">{line.at} </span>}
        {many && <span class="who">{line.pod}{line.container && !container ? `/${line.container}` : ""} </span>}
        <Text text={line.text} wanted={wanted} />
        {line.cut && <span class="when"> {t("… cut")}</span>}
      </div>,
    );
  }

  return (
    <>
      <div class="toolbar">
        {containers.length > 1 && (
          <select class="select" aria-label={t("Container")} value={container} onChange={(event) => setQuery({ container: event.currentTarget.value })}>
            {!isPod && <option value="">{t("All containers")}</option>}
            {containers.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        )}
        <select class="select" aria-label={t("How much")} value={tail} onChange={(event) => setQuery({ tail: event.currentTarget.value })}>
          {TAILS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
        </select>
        <input
          id="log-find"
          class="field"
          type="search"
          placeholder={t("Find")}
          aria-label={t("Find in the log")}
          value={wanted}
          spellcheck={false}
          onInput={(event) => { setQuery({ find: event.currentTarget.value }); setAt(0); }}
          onKeyDown={(event) => {
            if (event.key === "Enter") jump(event.shiftKey ? -1 : 1);
            else if (event.key === "Escape") event.currentTarget.blur();
          }}
        />
        {wanted && <span class="muted number small" data-found={found.length}>{t("{count} found", { count: found.length.toLocaleString(locale) })}</span>}
        <label class="row small"><input type="checkbox" class="check" checked={only} onChange={() => setQuery({ only: only ? null : "1" })} /> {t("Only these")}</label>
        {isPod && <label class="row small"><input type="checkbox" class="check" checked={previous} onChange={() => setQuery({ previous: previous ? null : "1" })} /> {t("Before the last restart")}</label>}
        <label class="row small"><input type="checkbox" class="check" checked={times} onChange={() => setQuery({ times: times ? null : "1" })} /> {t("Times")}</label>
        <span class="grow" />
        <span class="muted number small" role="status" data-lines={lines.length}>{t("{total} lines{what}", { total: lines.total.toLocaleString(locale), what: lines.first ? t(", the last {count} kept", { count: lines.length.toLocaleString(locale) }) : "" })}</span>
        <a class="button" href={download} download={`${place.name}.log`}>{t("Download")}</a>
      </div>
      {ended?.problem && <ProblemNotice problem={bodyProblem(ended.problem)} again={() => setRound(round + 1)} />}
      {notices.length > 0 && <div class="notice warn" role="status"><div class="break">{notices.map((notice, index) => <p key={index}>{notice}</p>)}</div></div>}
      <div ref={box} class="fills log" tabIndex={0} role="log" aria-label={t("Log of {name}", { name: place.name })} aria-live="off" onScroll={scrolled}>
        <div style={{ height: `${count * LINE + 6}px` }}>{drawn}</div>
        {count === 0 && (
          <p class="muted" style={{ padding: "12px" }}>
            {ended && !ended.problem ? t("The log is empty.") : ended ? "" : wanted && only ? t("Nothing is found.") : t("Nothing was written yet.")}
          </p>
        )}
      </div>
    </>
  );
}

function Text({ text, wanted }: { text: string; wanted: string }) {
  if (!wanted) return <>{text}</>;
  const parts = [];
  const [hay, needle] = [text.toLowerCase(), wanted.toLowerCase()];
  let from = 0;
  for (let at = hay.indexOf(needle); at >= 0 && parts.length < 40; at = hay.indexOf(needle, from)) {
    parts.push(text.slice(from, at), <mark key={at}>{text.slice(at, at + needle.length)}</mark>);
    from = at + needle.length;
  }
  return <>{parts}{text.slice(from)}</>;
}
