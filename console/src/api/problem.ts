/** Refusals of the API as sentences, with what to do about them. */
import { t } from "../language";
import type { ProblemBody } from "./schema";

/** A request that was refused, or that did not reach the server. */
export class ApiProblem extends Error {
  readonly body: ProblemBody;

  constructor(body: ProblemBody) {
    super(body.detail || body.title);
    this.name = "ApiProblem";
    this.body = body;
  }

  get code(): string {
    return this.body.code;
  }

  get status(): number {
    return this.body.status;
  }

  /** How long to wait before another try helps, if one does. */
  get retryAfterMs(): number | null {
    return this.body.retryAfterMs ?? null;
  }
}

export interface Explanation {
  /** What happened. */
  sentence: string;
  /** What to do; absent where there is nothing to do. */
  todo?: string;
  /** For the audit and the log of the server. */
  requestId?: string;
  /** Whether trying again can help. */
  again: boolean;
}

function problem(code: string, detail: string, status = 0): ApiProblem {
  return new ApiProblem({ type: "about:blank", title: detail, status, code, detail });
}

/** The server could not be reached at all. */
export function offline(): ApiProblem {
  return problem("offline", t("Fairlead does not answer"));
}

/** Anything that was thrown, as a problem. An abort is not one: callers check for it first. */
export function asProblem(thrown: unknown): ApiProblem {
  if (thrown instanceof ApiProblem) return thrown;
  if (thrown instanceof TypeError) return offline();
  return problem("page", thrown instanceof Error ? thrown.message : String(thrown));
}

export function isAbort(thrown: unknown): boolean {
  return thrown instanceof DOMException && thrown.name === "AbortError";
}

/** Reads a refusal; one that is not problem+json still becomes a sentence. */
export async function readProblem(response: Response): Promise<ApiProblem> {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text) as ProblemBody;
    if (typeof body.code === "string") return new ApiProblem(body);
  } catch {
    // Not JSON: a proxy's answer.
  }
  const said = text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " ").trim().slice(0, 200);
  return problem("proxy", said || t("the answer was {status} {statusText}", { status: response.status, statusText: response.statusText }), response.status);
}

const TODO: Record<string, string> = {
  offline: t("Check that the process runs and that this machine reaches it; the page tries again by itself."),
  unauthenticated: t("Log in again."),
  forbidden: t("Ask an administrator for a role that allows it."),
  csrf: t("Load the page again."),
  "no-such-cluster": t("Look at the Fleet page for the clusters that you may see."),
  "no-such-kind": t("If the kind was just added, forget the known kinds of this cluster on the Fleet page."),
  "not-found": t("It may have been deleted, or your roles do not let you see it."),
  "not-served": t("This process was started without it."),
  conflict: t("Load the newest version, and make the change again."),
  exists: t("Choose another name."),
  "too-large": t("Narrow the question down: a namespace, a label, fewer clusters."),
  unreachable: t("Test the cluster step by step on the Fleet page."),
  "not-ready": t("Test the cluster step by step on the Fleet page."),
  audit: t("Look at the free space and the rights of the data directory: what cannot be recorded is not done."),
  "too-late": t("Try again, or ask for less."),
  internal: t("This is our fault. The request id finds it in the server's log."),
};

function seconds(ms: number): string {
  return ms < 1500 ? t("a second") : t("{ceil} seconds", { ceil: Math.ceil(ms / 1000) });
}

export function explain(thrown: unknown): Explanation {
  const { code, message, body, retryAfterMs } = asProblem(thrown);
  // The name of a cluster before a colon is a name, and stays as it is written.
  const named = /^[a-z0-9][\w.-]*: /.test(message);
  const sentence = !message ? t("Something went wrong") : named ? message : message.charAt(0).toUpperCase() + message.slice(1);
  const todo = retryAfterMs !== null ? t("Try again in {seconds}.", { seconds: seconds(retryAfterMs) }) : TODO[code];
  const again = !["forbidden", "invalid", "no-such-cluster", "not-served", "csrf", "exists"].includes(code);
  return {
    sentence: /[.!?]$/.test(sentence) ? sentence : `${sentence}.`,
    again,
    ...(todo ? { todo } : {}),
    ...(body.requestId ? { requestId: body.requestId } : {}),
  };
}
