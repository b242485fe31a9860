// A real API server as a test reaches it: its kubeconfig, and requests as its administrator.
import { readFileSync } from "node:fs";
import https from "node:https";

export class Kube {
  constructor(kubeconfig) {
    this.config = JSON.parse(readFileSync(kubeconfig));
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

  request(method, path, body, type = "application/json") {
    const text = body === undefined ? undefined : JSON.stringify(body);
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
