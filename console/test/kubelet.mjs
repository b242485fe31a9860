// A stand-in for a kubelet: what an API server calls for logs, exec and port-forward, over TLS on loopback.
// It runs no containers: their output is made up here, and their ports are those of loopback.
import { createHash } from "node:crypto";
import https from "node:https";
import net from "node:net";

const MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

export class Kubelet {
  /** Lines of the log of each pod, by its name. */
  logs = new Map();
  /** How often the log of a pod is refused before it is told, by the pod's name. */
  refusals = new Map();
  /** Bytes that the shell was sent, and the sizes that it was told. */
  typed = 0;
  sizes = [];
  #followers = new Map();

  async start(kube) {
    // Nobody checks a kubelet's certificate here: any will do.
    this.server = https.createServer({ cert: kube.certificate, key: kube.key }, (request, response) => this.#log(request, response));
    this.server.on("upgrade", (request, socket) => (request.url.startsWith("/portForward/") ? this.#forward(request, socket) : this.#exec(request, socket)));
    await new Promise((listening) => this.server.listen(0, "127.0.0.1", listening));
    return this;
  }

  get port() {
    return this.server.address().port;
  }

  /** Makes itself the kubelet of a node. */
  async register(kube, node) {
    await kube.request("POST", "/api/v1/nodes", { metadata: { name: node } }).catch((error) => {
      if (!/AlreadyExists/.test(error.message)) throw error;
    });
    const status = { addresses: [{ type: "InternalIP", address: "127.0.0.1" }], daemonEndpoints: { kubeletEndpoint: { Port: this.port } } };
    await kube.request("PATCH", `/api/v1/nodes/${node}/status`, { status }, "application/merge-patch+json");
  }

  write(pod, line) {
    const stamped = `${new Date().toISOString().replace("Z", "000000Z")} ${line}`;
    this.logs.set(pod, [...(this.logs.get(pod) ?? []), stamped]);
    for (const { response, times } of this.#followers.get(pod) ?? []) response.write(`${times ? stamped : line}\n`);
  }

  #log(request, response) {
    const url = new URL(request.url, "https://kubelet");
    const [, place, , pod] = url.pathname.split("/");
    if (place !== "containerLogs") {
      response.writeHead(404).end();
      return;
    }
    const refused = this.refusals.get(pod) ?? 0;
    if (refused > 0) {
      this.refusals.set(pod, refused - 1);
      response.writeHead(500).end("the runtime does not answer");
      return;
    }
    const times = url.searchParams.get("timestamps") === "true";
    const tail = url.searchParams.get("tailLines");
    let lines = this.logs.get(pod) ?? [];
    if (tail !== null) lines = lines.slice(Math.max(0, lines.length - Number(tail)));
    response.writeHead(200, { "content-type": "text/plain" });
    const text = lines.map((line) => (times ? line : line.slice(line.indexOf(" ") + 1))).join("\n");
    if (text) response.write(`${text}\n`);
    if (url.searchParams.get("follow") !== "true") {
      response.end();
      return;
    }
    response.flushHeaders();
    const follower = { response, times };
    this.#followers.set(pod, [...(this.#followers.get(pod) ?? []), follower]);
    request.on("close", () => this.#followers.set(pod, (this.#followers.get(pod) ?? []).filter((one) => one !== follower)));
  }

  /** Answers the upgrade; what it returns writes to a channel. */
  #upgrade(request, socket) {
    const accept = createHash("sha1").update(request.headers["sec-websocket-key"] + MAGIC).digest("base64");
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n`);
    return (channel, data) => socket.write(frame(Buffer.concat([Buffer.from([channel]), Buffer.from(data)])));
  }

  /** Carries bytes between the API server and a port of loopback. */
  #forward(request, socket) {
    const say = this.#upgrade(request, socket);
    const port = Number(new URL(request.url, "https://kubelet").searchParams.get("port"));
    for (const channel of [0, 1]) say(channel, [port & 255, port >> 8]);
    const to = net.connect(port, "127.0.0.1");
    to.on("data", (bytes) => {
      for (let at = 0; at < bytes.length; at += 32_768) say(0, bytes.subarray(at, at + 32_768));
    });
    to.on("error", ({ message }) => say(1, message));
    to.on("close", () => socket.end(Buffer.from([0x88, 0])));
    socket.on("error", () => to.destroy());
    socket.on("close", () => to.destroy());
    let left = Buffer.alloc(0);
    socket.on("data", (bytes) => {
      left = Buffer.concat([left, bytes]);
      for (let found = unframe(left); found; found = unframe(left)) {
        left = left.subarray(found.length);
        if (found.opcode === 8) return to.end();
        if (found.opcode === 9) socket.write(frame(found.data, 0x8a));
        if (found.opcode <= 2 && found.data[0] === 0) to.write(found.data.subarray(1));
      }
    });
  }

  /** A shell that repeats what is typed, and leaves with 7 at `exit`. */
  #exec(request, socket) {
    const say = this.#upgrade(request, socket);
    say(1, "$ ");
    let left = Buffer.alloc(0);
    socket.on("error", () => {});
    socket.on("data", (bytes) => {
      left = Buffer.concat([left, bytes]);
      for (let found = unframe(left); found; found = unframe(left)) {
        left = left.subarray(found.length);
        if (found.opcode === 8) return socket.end();
        // A kubelet answers pings: who does not is taken for lost.
        if (found.opcode === 9) socket.write(frame(found.data, 0x8a));
        if (found.opcode > 2) continue;
        const [channel, data] = [found.data[0], found.data.subarray(1)];
        if (channel === 4) this.sizes.push(JSON.parse(data.toString()));
        if (channel !== 0) continue;
        this.typed += data.length;
        if (data.toString().includes("\u0004")) {
          say(3, JSON.stringify({ metadata: {}, status: "Failure", reason: "NonZeroExitCode", details: { causes: [{ reason: "ExitCode", message: "7" }] } }));
          socket.end(Buffer.from([0x88, 0]));
          return;
        }
        // A large paste is counted, not repeated.
        if (data.length < 4096) say(1, data.toString().replaceAll("\r", "\r\n$ "));
      }
    });
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

/** A frame: of binary data, or of another kind. */
function frame(data, kind = 0x82) {
  const head = data.length < 126 ? Buffer.from([kind, data.length]) : Buffer.from([kind, 126, data.length >> 8, data.length & 255]);
  return Buffer.concat([head, data]);
}

function unframe(bytes) {
  if (bytes.length < 2) return null;
  let [size, at] = [bytes[1] & 127, 2];
  if (size === 126) {
    if (bytes.length < 4) return null;
    [size, at] = [bytes.readUInt16BE(2), 4];
  } else if (size === 127) {
    if (bytes.length < 10) return null;
    [size, at] = [Number(bytes.readBigUInt64BE(2)), 10];
  }
  const masked = (bytes[1] & 128) !== 0;
  const mask = masked ? bytes.subarray(at, at + 4) : null;
  if (masked) at += 4;
  if (bytes.length < at + size) return null;
  const data = Buffer.from(bytes.subarray(at, at + size));
  if (mask) for (let index = 0; index < data.length; index++) data[index] ^= mask[index % 4];
  return { opcode: bytes[0] & 15, data, length: at + size };
}
