// A real API server as a test reaches it: its kubeconfig, and requests as its administrator.
import { randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { dirname, join } from "node:path";

/** The most operations that etcd takes in one transaction. */
const AT_ONCE = 128;

export class Kube {
  constructor(kubeconfig) {
    this.config = JSON.parse(readFileSync(kubeconfig));
    // Where the API server of the test kit keeps everything.
    this.etcd = join(dirname(kubeconfig), "etcd:0");
    const { cluster } = this.config.clusters[0];
    const { user } = this.config.users.find(({ name }) => name === "certificate");
    const pem = (data) => Buffer.from(data, "base64");
    this.server = new URL(cluster.server);
    this.certificate = pem(user["client-certificate-data"]);
    this.key = pem(user["client-key-data"]);
    this.agent = new https.Agent({
      keepAlive: true,
      maxSockets: 24,
      ca: pem(cluster["certificate-authority-data"]),
      cert: this.certificate,
      key: this.key,
    });
  }

  /** A body that is a text is sent as it is: YAML, with its type. */
  request(method, path, body, type = "application/json") {
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const request = https.request(
        { host: this.server.hostname, port: this.server.port, method, path, agent: this.agent, headers: text ? { "content-type": type, "content-length": Buffer.byteLength(text) } : {} },
        (response) => {
          let said = "";
          response.setEncoding("utf8").on("data", (piece) => { said += piece; });
          response.on("end", () => {
            if (response.statusCode < 300) resolve(said ? JSON.parse(said) : null);
            else reject(new Error(`${method} ${path}: ${response.statusCode} ${said.slice(0, 300)}`));
          });
        },
      );
      request.on("error", reject);
      request.end(text);
    });
  }

  namespace(name) {
    return this.request("POST", "/api/v1/namespaces", { metadata: { name } });
  }

  pod(namespace, name, more = {}) {
    const { spec, ...metadata } = more;
    return this.request("POST", `/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name, ...metadata },
      spec: { containers: [{ name: "web", image: "registry.invalid/web:1" }], terminationGracePeriodSeconds: 0, ...spec },
    });
  }

  /** Writes what an API server would have written, straight into its etcd. */
  #put(objects) {
    const success = objects.map(([key, value]) => ({ requestPut: { key: Buffer.from(key).toString("base64"), value: Buffer.from(JSON.stringify(value)).toString("base64") } }));
    const body = JSON.stringify({ success });
    return new Promise((resolve, reject) => {
      const request = http.request({ socketPath: this.etcd, method: "POST", path: "/v3/kv/txn", headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) } }, (response) => {
        let said = "";
        response.setEncoding("utf8").on("data", (piece) => { said += piece; }).on("end", () => (response.statusCode === 200 ? resolve() : reject(new Error(`etcd: ${response.statusCode} ${said.slice(0, 300)}`))));
      });
      request.on("error", reject).end(body);
    });
  }

  /**
   * Makes `count` pods, spread over namespaces, as they would be in a cluster that runs: owned, scheduled,
   * with a status. They go into etcd in bulk, where it can be reached; one by one it takes minutes.
   */
  async manyPods(count, namespaces, prefix = "web") {
    if (!existsSync(this.etcd)) return this.pods(count, namespaces, prefix);
    const created = new Date(Date.now() - 3_600_000).toISOString().replace(/\.\d+Z/, "Z");
    const one = (index) => {
      const [namespace, name] = [namespaces[index % namespaces.length], `${prefix}-${index}`];
      const ready = { lastTransitionTime: created, status: "True" };
      return [`/registry/pods/${namespace}/${name}`, {
        apiVersion: "v1", kind: "Pod",
        metadata: { name, namespace, uid: randomUUID(), creationTimestamp: created, labels: { app: prefix, "pod-template-hash": "7d9f8c6b5" }, ownerReferences: [{ apiVersion: "apps/v1", kind: "ReplicaSet", name: `${prefix}-7d9f8c6b5`, uid: "5f1c0b8e-2f41-4c53-9f5e-0f6b4a5d7c11", controller: true, blockOwnerDeletion: true }] },
        spec: { nodeName: `node-${index % 300}`, restartPolicy: "Always", terminationGracePeriodSeconds: 0, dnsPolicy: "ClusterFirst", schedulerName: "default-scheduler", serviceAccountName: "default", securityContext: {}, containers: [{ name: "web", image: `registry.example.com/shop/${prefix}:1.4.2`, imagePullPolicy: "IfNotPresent", ports: [{ containerPort: 8080, protocol: "TCP" }], env: [{ name: "REGION", value: "eu-central-1" }, { name: "LOG_LEVEL", value: "info" }], resources: { requests: { cpu: "250m", memory: "256Mi" }, limits: { memory: "512Mi" } }, terminationMessagePath: "/dev/termination-log", terminationMessagePolicy: "File" }] },
        status: { phase: "Running", hostIP: `10.0.${(index >> 8) & 255}.1`, podIP: `10.${64 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`, startTime: created, qosClass: "Burstable", conditions: ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map((type) => ({ type, ...ready })), containerStatuses: [{ name: "web", ready: true, started: true, restartCount: index % 5, image: `registry.example.com/shop/${prefix}:1.4.2`, imageID: "registry.example.com/shop/web@sha256:0000000000000000000000000000000000000000000000000000000000000000", containerID: "containerd://0000000000000000000000000000000000000000000000000000000000000000", state: { running: { startedAt: created } }, lastState: {} }] },
      }];
    };
    for (let from = 0; from < count; from += AT_ONCE) {
      await this.#put(Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, at) => one(from + at)));
    }
  }

  /** Makes `count` pods, spread over namespaces, many at a time. */
  async pods(count, namespaces, prefix = "web") {
    let next = 0;
    const work = async () => {
      for (let index = next++; index < count; index = next++) {
        await this.pod(namespaces[index % namespaces.length], `${prefix}-${index}`, { labels: { app: prefix } });
      }
    };
    await Promise.all(Array.from({ length: 24 }, work));
  }

  /** Writes a status: the kubelet's work, where there is none. */
  status(namespace, name, status) {
    return this.request("PATCH", `/api/v1/namespaces/${namespace}/pods/${name}/status`, { status }, "application/merge-patch+json");
  }
}
