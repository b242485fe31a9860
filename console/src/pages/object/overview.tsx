/** What an object is, how it stands, who owns it, and what happened to it. */
import type { Description, Event, NodeTaint, Related } from "../../api/schema";
import { locale, rich, t } from "../../language";
import { ProblemNotice } from "../../parts/problem";
import { Age } from "../../parts/time";
import { wordTone } from "../../parts/tone";
import { object as objectHref, explore, type ObjectPlace } from "../../places";
import { conditionsOf, conditionTone, containersOf, containerStatus, podSpec, selectorOf, type Condition, type KubeObject } from "./kube";
import { Taints } from "../../usage";
import { hrefOf, useKinds } from "./related";
import "./overview.css";

export function Overview({ place, description }: { place: ObjectPlace; description: Description }) {
  const object = description.object as KubeObject;
  const { metadata = {} } = object;
  const spec = podSpec(object);
  const selector = selectorOf(object);
  const conditions = conditionsOf(object);
  return (
    <div class="overview">
      {(description.problems ?? []).map((problem) => (
        <ProblemNotice key={problem} problem={new Error(problem)} />
      ))}
      {metadata.deletionTimestamp && (
        <div class="notice warn">
          <p>
            {rich("It is being deleted since {age}{what}.", { age: <Age time={metadata.deletionTimestamp} />, what: metadata.finalizers?.length ? t(", and waits for {finalizers}", { finalizers: metadata.finalizers.join(", ") }) : "" })}
          </p>
        </div>
      )}
      <dl class="pairs">
        {description.state && <><dt>{t("State")}</dt><dd class={toneClass(wordTone(description.state))}>{description.state}</dd></>}
        <dt>{t("Age")}</dt>
        <dd><Age time={metadata.creationTimestamp} /></dd>
        {spec?.nodeName && <><dt>Node</dt><dd><a href={objectHref({ cluster: place.cluster, kind: "nodes", name: spec.nodeName })}>{spec.nodeName}</a></dd></>}
        {typeof object.status?.["podIP"] === "string" && <><dt>{t("Address")}</dt><dd class="mono">{object.status["podIP"] as string}</dd></>}
        {spec?.serviceAccountName && <><dt>{t("Service account")}</dt><dd><a href={objectHref({ cluster: place.cluster, kind: "serviceaccounts", namespace: place.namespace, name: spec.serviceAccountName })}>{spec.serviceAccountName}</a></dd></>}
        {typeof object.spec?.["replicas"] === "number" && <><dt>{t("Replicas")}</dt><dd class="number">{t("{String} ready of {String2}", { String: String(object.status?.["readyReplicas"] ?? 0), String2: String(object.spec["replicas"]) })}</dd></>}
        {typeof object.spec?.["clusterIP"] === "string" && <><dt>{t("Cluster address")}</dt><dd class="mono">{object.spec["clusterIP"] as string}</dd></>}
        {selector && object.kind !== "Pod" && <><dt>{t("Selects")}</dt><dd><a class="break mono" href={explore([place.cluster], "pods", { ns: place.namespace, labels: selector })}>{selector}</a></dd></>}
        {Array.isArray(object.spec?.["taints"]) && <><dt>Taints</dt><dd><Taints of={object.spec["taints"] as NodeTaint[]} /></dd></>}
        {metadata.labels && <><dt>{t("Labels")}</dt><dd><Pairs of={metadata.labels} /></dd></>}
        {metadata.annotations && <><dt>{t("Annotations")}</dt><dd><Annotations of={metadata.annotations} /></dd></>}
      </dl>
      {conditions.length > 0 && <Conditions conditions={conditions} />}
      <Containers object={object} />
      <Data object={object} />
      <Owners place={place} description={description} />
      <Events events={description.events} />
    </div>
  );
}

function toneClass(tone: string): string {
  return tone === "bad" ? "bad-text" : tone === "warn" ? "warn-text" : "";
}

function Pairs({ of }: { of: Record<string, string> }) {
  return (
    <span class="labels">
      {Object.entries(of).map(([key, value]) => (
        <span key={key} class="tag" title={`${key}=${value}`}><span class="clip">{key}={value}</span></span>
      ))}
    </span>
  );
}

function Annotations({ of }: { of: Record<string, string> }) {
  const entries = Object.entries(of).filter(([key]) => key !== "kubectl.kubernetes.io/last-applied-configuration");
  if (!entries.length) return <span class="faint">–</span>;
  return (
    <details>
      <summary>{entries.length}</summary>
      <dl class="annotations">
        {entries.map(([key, value]) => (
          <>
            <dt key={`${key} key`} class="break">{key}</dt>
            <dd key={key} class="mono break">{value}</dd>
          </>
        ))}
      </dl>
    </details>
  );
}

function Conditions({ conditions }: { conditions: Condition[] }) {
  return (
    <section>
      <h3>{t("Conditions")}</h3>
      <ul class="lines">
        {conditions.map((condition) => {
          const { type, reason, message, lastTransitionTime } = condition;
          const tone = conditionTone(condition);
          return (
            <li key={type}>
              <span class={`dot ${tone}`} />
              <span class="grow">
                {type}
                {reason && reason !== type && <span class="faint"> {reason}</span>}
                {message && tone === "bad" && <p class="muted break">{message}</p>}
              </span>
              <span class="faint"><Age time={lastTransitionTime} /></span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Containers({ object }: { object: KubeObject }) {
  const containers = containersOf(object);
  if (!containers.length) return null;
  const isPod = object.kind === "Pod";
  return (
    <section>
      <h3>{t("Containers")}</h3>
      <ul class="lines">
        {containers.map(({ container, init }) => {
          const status = containerStatus(object, container.name);
          const [state, detail] = Object.entries(status?.state ?? {})[0] ?? [];
          const word = detail?.reason ?? state;
          const last = status?.lastState?.["terminated"];
          const done = init && state === "terminated" && detail?.exitCode === 0;
          return (
            <li key={container.name}>
              {isPod && <span class={`dot ${done || status?.ready ? "ok" : state === "running" ? "warn" : status ? "bad" : ""}`} />}
              <span class="grow">
                <strong>{container.name}</strong> {init && <span class="tag">init</span>}
                {word && <span class={toneClass(wordTone(word))}> {word}</span>}
                {(status?.restartCount ?? 0) > 0 && <span class="faint">{" "}{t("{restartCount} restarts", { restartCount: status?.restartCount })}</span>}
                <p class="mono muted break">{container.image}</p>
                {detail?.message && <p class="muted break">{detail.message}</p>}
                {last && <p class="muted">{rich("The one before ended {age} with {reason}{what}.", { age: <Age time={last.finishedAt} ago />, reason: last.reason ?? t("code {exitCode}", { exitCode: last.exitCode ?? "?" }), what: last.exitCode !== undefined && last.reason ? ` (${last.exitCode})` : "" })}</p>}
                <Resources of={container.resources} />
              </span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Resources({ of }: { of: { requests?: Record<string, string>; limits?: Record<string, string> } | undefined }) {
  const text = (title: string, values: Record<string, string> | undefined) =>
    values && Object.keys(values).length ? `${title} ${Object.entries(values).map(([name, value]) => `${name} ${value}`).join(", ")}` : "";
  const parts = [text("requests", of?.requests), text("limits", of?.limits)].filter(Boolean);
  return parts.length ? <p class="faint small">{parts.join(" · ")}</p> : null;
}

/** The values of a Secret come masked: their sizes are shown. */
function Data({ object }: { object: KubeObject }) {
  if (!object.data || typeof object.data !== "object") return null;
  return (
    <section>
      <h3>{t("Data")}</h3>
      <ul class="lines">
        {Object.entries(object.data).map(([key, value]) => {
          const hidden = /^<masked: (.*)>$/.exec(String(value))?.[1];
          const size = new TextEncoder().encode(String(value)).length;
          return (
            <li key={key}>
              <span class="grow break">
                {key}
                {hidden === undefined && <pre class="value">{String(value).slice(0, 2000)}</pre>}
              </span>
              <span class="faint number">{hidden === undefined ? t("{size} bytes", { size: size.toLocaleString(locale) }) : t("hidden, {hidden}", { hidden })}</span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Owners({ place, description }: { place: ObjectPlace; description: Description }) {
  const kinds = useKinds(place.cluster);
  const { owners, owned } = description;
  if (!owners.length && !owned.length) return null;
  const link = ({ apiVersion, kind, namespace, name, status }: Related, depth: number) => {
    const to = hrefOf(kinds, place.cluster, place.namespace, { apiVersion, kind, namespace: namespace ?? null, name });
    return (
      <li key={`${kind}/${name}`} style={{ paddingLeft: `${depth * 16}px` }}>
        <span class="faint kind clip">{kind}</span>
        {to ? <a class="clip" href={to}>{name}</a> : <span class="clip">{name}</span>}
        <span class="grow" />
        <span class={`clip ${toneClass(wordTone(status)) || "muted"}`}>{status}</span>
      </li>
    );
  };
  // The nearest owner comes first in the answer; the tree begins with the root.
  const chain = [...owners].reverse();
  return (
    <section>
      <h3>{t("Owners and owned")}</h3>
      <ul class="lines tree">
        {chain.map((owner, depth) => link(owner, depth))}
        <li style={{ paddingLeft: `${chain.length * 16}px` }}>
          <span class="faint kind clip">{(description.object as KubeObject).kind}</span>
          <strong class="clip">{place.name}</strong>
        </li>
        {owned.slice(0, 100).map((one) => link(one, chain.length + 1))}
        {owned.length > 100 && <li class="muted">{t("and {what} more", { what: owned.length - 100 })}</li>}
      </ul>
    </section>
  );
}

export function Events({ events }: { events: Event[] }) {
  return (
    <section>
      <h3>{t("Events")}</h3>
      {events.length === 0 && <p class="muted">{t("None is known. Kubernetes forgets events after an hour, mostly.")}</p>}
      <ul class="lines">
        {events.slice(0, 100).map((event, index) => (
          <li key={index}>
            <span class={`dot ${event.type === "Warning" ? "warn" : ""}`} />
            <span class="grow">
              <strong>{event.reason}</strong>
              {event.count > 1 && <span class="faint"> ×{event.count}</span>}
              <p class="muted break">{event.message}</p>
            </span>
            <span class="faint"><Age time={event.lastSeen} /></span>
          </li>
        ))}
      </ul>
    </section>
  );
}
