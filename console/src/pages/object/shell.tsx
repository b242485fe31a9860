/** A shell: in a container of a pod, in a debug container, on a node. */
import { useEffect, useRef, useState } from "preact/hooks";
import { BASE, path, socketUrl } from "../../api/client";
import { readProblem } from "../../api/problem";
import { t } from "../../language";
import { ProblemNotice } from "../../parts/problem";
import type { ObjectPlace } from "../../places";
import { query, setQuery } from "../../router";
import { containersOf, type KubeObject } from "./kube";

/** bash where there is one. */
const SHELL = ["sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh"];
const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, status: 3, resize: 4 };
/** A paste is sent in pieces: the server takes frames of up to a megabyte. */
const PIECE = 32 * 1024;

function frame(channel: number, bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(bytes.length + 1);
  whole[0] = channel;
  whole.set(bytes, 1);
  return whole;
}

/** Where a shell is opened: in a container of a pod, in a debug container beside it, or on a node. */
export type ShellKind = "exec" | "debug" | "node";

/** What is used where nobody says otherwise; the server knows a default of its own. */
const TODO: Record<Exclude<ShellKind, "exec">, string> = {
  debug: t("An ephemeral container is added to the pod. It cannot be taken away again: it stays, ended, until the pod goes."),
  node: t("A privileged pod is started on the node, and removed when the shell ends. It is in the audit."),
};

export default function Shell({ place, object, kind }: { place: ObjectPlace; object: KubeObject; kind: ShellKind }) {
  const containers = kind === "node" ? [] : containersOf(object).filter(({ init }) => !init).map(({ container }) => container.name);
  const [started, setStarted] = useState(kind === "exec");
  const [image, setImage] = useState("");
  const [target, setTarget] = useState(containers[0] ?? "");
  if (started) return <Session place={place} kind={kind} containers={containers} image={image} target={target} />;
  return (
    <form class="card" onSubmit={(event) => { event.preventDefault(); setStarted(true); }}>
      <header><h2>{kind === "debug" ? t("A debug container") : t("A shell on {name}", { name: place.name })}</h2></header>
      <div class="body stack">
        <p>{kind !== "exec" && TODO[kind]}</p>
        <label class="label">{t("Image")}<input class="field mono" placeholder={t("the server's default")} spellcheck={false} value={image} onInput={(event) => setImage(event.currentTarget.value)} /></label>
        {kind === "debug" && (
          <label class="label">
            {t("Sees the processes of")}
            <select class="select" value={target} onChange={(event) => setTarget(event.currentTarget.value)}>
              {containers.map((name) => <option key={name} value={name}>{name}</option>)}
              <option value="">{t("none of its containers")}</option>
            </select>
          </label>
        )}
        <div class="row"><button type="submit" class="button primary">{kind === "debug" ? t("Add and open") : t("Start and open")}</button></div>
      </div>
    </form>
  );
}

interface SessionProps {
  place: ObjectPlace;
  kind: ShellKind;
  containers: string[];
  image: string;
  target: string;
}

/** The route of a shell, and what it is asked with. */
function shellRoute({ place, kind, image, target }: SessionProps, container: string): [string, URLSearchParams] {
  if (kind === "node") return [path`/clusters/${place.cluster}/resources/nodes/${place.name}/shell`, new URLSearchParams(image ? { image } : {})];
  const params = new URLSearchParams({ namespace: place.namespace ?? "" });
  if (kind === "debug") {
    if (image) params.set("image", image);
    if (target) params.set("target", target);
    return [path`/clusters/${place.cluster}/resources/pods/${place.name}/debug`, params];
  }
  params.set("container", container);
  params.set("tty", "true");
  params.set("stdin", "true");
  for (const word of SHELL) params.append("command", word);
  return [path`/clusters/${place.cluster}/resources/pods/${place.name}/exec`, params];
}

function Session(props: SessionProps) {
  const { place, kind, containers } = props;
  const container = kind === "exec" ? (query.value.get("container") ?? containers[0] ?? "") : "";
  const host = useRef<HTMLDivElement>(null);
  const [round, setRound] = useState(0);
  const [ended, setEnded] = useState<string | null>(null);
  const [problem, setProblem] = useState<unknown>(null);

  useEffect(() => {
    let gone = false;
    let close = () => {};
    setEnded(null);
    setProblem(null);
    void import("./terminal").then(({ openScreen }) => {
      if (gone || !host.current) return;
      const [route, params] = shellRoute(props, container);
      const socket = new WebSocket(socketUrl(route, params));
      socket.binaryType = "arraybuffer";
      const encoder = new TextEncoder();
      let opened = false;
      let said = "";
      const send = (channel: number, bytes: Uint8Array) => {
        if (socket.readyState === WebSocket.OPEN) socket.send(frame(channel, bytes));
      };
      const screen = openScreen(host.current, {
        data: (text) => {
          const bytes = encoder.encode(text);
          for (let from = 0; from < bytes.length; from += PIECE) send(CHANNEL.stdin, bytes.subarray(from, from + PIECE));
        },
        resize: (size) => send(CHANNEL.resize, encoder.encode(JSON.stringify(size))),
      });
      socket.onopen = () => {
        opened = true;
        send(CHANNEL.resize, encoder.encode(JSON.stringify(screen.size())));
        screen.focus();
      };
      socket.onmessage = ({ data }) => {
        const bytes = new Uint8Array(data as ArrayBuffer);
        if (bytes[0] === CHANNEL.stdout || bytes[0] === CHANNEL.stderr) screen.write(bytes.subarray(1));
        else if (bytes[0] === CHANNEL.status) {
          const status = JSON.parse(new TextDecoder().decode(bytes.subarray(1))) as { exitCode?: number; reason?: string };
          said = status.reason ?? t("The shell has ended with code {exitCode}.", { exitCode: status.exitCode ?? 0 });
        }
      };
      socket.onclose = (event) => {
        if (gone) return;
        if (opened) setEnded(said || event.reason || t("The connection was lost."));
        else void whyNot(`${BASE}${route}?${params}`).then(setProblem);
      };
      close = () => {
        socket.close();
        screen.destroy();
      };
    });
    return () => {
      gone = true;
      close();
    };
  }, [place.cluster, place.namespace, place.name, container, round]);

  return (
    <>
      <div class="toolbar">
        {kind === "exec" && containers.length > 1 && (
          <select class="select" aria-label={t("Container")} value={container} onChange={(event) => setQuery({ container: event.currentTarget.value })}>
            {containers.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        )}
        <span class="muted small">{t("What is typed here goes to the container; Tab and Esc too. Leave it with the mouse or Ctrl+K.")}</span>
      </div>
      {problem !== null && <ProblemNotice problem={problem} again={() => setRound(round + 1)} />}
      {ended !== null && (
        <div class="notice info" role="status">
          <p class="grow">{ended}</p>
          <button type="button" class="button" autofocus onClick={() => setRound(round + 1)}>{t("Open another")}</button>
        </div>
      )}
      <div key={`${container} ${round}`} ref={host} class="fills terminal" />
    </>
  );
}

/** A refused upgrade tells a page nothing; the same question as a plain request says why. */
async function whyNot(url: string): Promise<unknown> {
  try {
    return await readProblem(await fetch(url, { credentials: "same-origin" }));
  } catch (error) {
    return error;
  }
}
