/**
 * The one way to the REST API.
 *
 * A refusal is thrown as an `ApiProblem`. A read that is told to come back soon comes back by itself;
 * a change never does. The CSRF token lives in this module's memory and nowhere else.
 */
import { t } from "../language";
import { readEvents, type ServerEvent } from "./events";
import { ApiProblem, isAbort, offline, readProblem } from "./problem";

export const BASE = "/api/v1";

/** The longest wait that a read sits out by itself, and how often. */
const PATIENCE_MS = 4000;
const TRIES = 3;

export type Query = Record<string, string | number | boolean | string[] | null | undefined>;

export interface Options {
  query?: Query;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

let csrf: string | null = null;
let onLoggedOut: () => void = () => {};

export function setCsrf(token: string | null): void {
  csrf = token;
}

/** Called when the server no longer knows who asks. */
export function whenLoggedOut(then: () => void): void {
  onLoggedOut = then;
}

/** A path under the API, each part encoded: `` path`/clusters/${name}/kinds` ``. */
export function path(parts: TemplateStringsArray, ...values: string[]): string {
  return parts.reduce((whole, part, index) => {
    const value = values[index];
    return whole + part + (value === undefined ? "" : encodeURIComponent(value));
  }, "");
}

export function url(route: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) {
      if (value.length) params.set(name, value.join(","));
    } else params.set(name, String(value));
  }
  const text = params.toString();
  return BASE + route + (text ? `?${text}` : "");
}

/** The address of a WebSocket route. */
export function socketUrl(route: string, params: URLSearchParams): string {
  const to = new URL(`${BASE}${route}?${params}`, location.href);
  to.protocol = to.protocol === "https:" ? "wss:" : "ws:";
  return to.href;
}

async function send(method: string, route: string, options: Options, body?: BodyInit | null): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  if (method !== "GET" && csrf) headers["x-csrf-token"] = csrf;
  for (let attempt = 1; ; attempt++) {
    let response: Response;
    try {
      response = await fetch(url(route, options.query), {
        method,
        headers,
        body: body ?? null,
        signal: options.signal ?? null,
        credentials: "same-origin",
      });
    } catch (error) {
      throw isAbort(error) ? error : offline();
    }
    if (response.ok) return response;
    const problem = await readProblem(response);
    if (problem.status === 401 && route !== "/login") onLoggedOut();
    const wait = problem.retryAfterMs;
    const patient = method === "GET" && wait !== null && wait <= PATIENCE_MS && attempt < TRIES;
    if (!patient) throw problem;
    await pause(wait, options.signal);
  }
}

/** Waits, unless it is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("aborted", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

async function json<T>(response: Response): Promise<T> {
  if (response.status === 204) return undefined as T;
  const text = await response.text();
  if (!text) return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    const title = "unreadable";
    throw new ApiProblem({
      type: "about:blank",
      title,
      status: response.status,
      code: "proxy",
      detail: t("the answer is not JSON; is something in between that answers in Fairlead's place?"),
    });
  }
}

async function change<T>(method: string, route: string, body: unknown, options: Options): Promise<T> {
  const headers: Record<string, string> = { "content-type": "application/json", ...options.headers };
  if (body === undefined) delete headers["content-type"];
  return json<T>(await send(method, route, { ...options, headers }, body === undefined ? null : JSON.stringify(body)));
}

export const api = {
  get: async <T>(route: string, options: Options = {}): Promise<T> => json<T>(await send("GET", route, options)),
  text: async (route: string, options: Options = {}): Promise<string> => (await send("GET", route, options)).text(),
  post: <T>(route: string, body?: unknown, options: Options = {}) => change<T>("POST", route, body, options),
  put: <T>(route: string, body?: unknown, options: Options = {}) => change<T>("PUT", route, body, options),
  patch: <T>(route: string, body?: unknown, options: Options = {}) => change<T>("PATCH", route, body, options),
  delete: <T>(route: string, options: Options = {}) => change<T>("DELETE", route, undefined, options),
  /** A change that tells how it goes: the events of its answer, as they come. */
  follow: async (route: string, body: unknown, take: (event: ServerEvent) => void, options: Options = {}): Promise<void> =>
    readEvents(await send("POST", route, { ...options, headers: { "content-type": "application/json", accept: "text/event-stream", ...options.headers } }, JSON.stringify(body)), take),
  /** A question that is answered piece by piece: the events of its answer, as they come. */
  hear: async (route: string, take: (event: ServerEvent) => void, options: Options = {}): Promise<void> =>
    readEvents(await send("GET", route, { ...options, headers: { accept: "text/event-stream", ...options.headers } }), take),
  /** A body that is not JSON: YAML to apply, a dump for the doctor. */
  upload: async <T>(method: "POST" | "PUT", route: string, body: BodyInit, type: string, options: Options = {}): Promise<T> =>
    json<T>(await send(method, route, { ...options, headers: { "content-type": type, ...options.headers } }, body)),
};
