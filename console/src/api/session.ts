/** Who looks at the page, and what they may do. */
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { t } from "../language";
import { api, setCsrf, whenLoggedOut } from "./client";
import { ApiProblem, asProblem } from "./problem";
import type { Me } from "./schema";

export type Session =
  | { state: "asking" }
  | { state: "out"; why?: string }
  | { state: "in"; me: Me }
  | { state: "offline"; problem: ApiProblem };

export const session = signal<Session>({ state: "asking" });

whenLoggedOut(() => {
  if (session.value.state !== "in") return;
  setCsrf(null);
  session.value = { state: "out", why: t("Your session has ended.") };
});

/** Asks who one is. */
export async function askWho(): Promise<void> {
  try {
    const me = await api.get<Me>("/me");
    setCsrf(me.csrf ?? null);
    forgetAnswers();
    session.value = { state: "in", me };
  } catch (error) {
    const problem = asProblem(error);
    session.value = problem.status === 401 ? { state: "out" } : { state: "offline", problem };
  }
}

export async function logIn(user: string, password: string): Promise<void> {
  await api.post("/login", { user, password });
  await askWho();
}

export async function logOut(): Promise<void> {
  await api.post("/logout");
  setCsrf(null);
  session.value = { state: "out", why: t("You are logged out.") };
}

export interface Ask {
  cluster: string;
  namespace?: string | null;
  resource: string;
  verb: string;
}

const answers = new Map<string, boolean>();
let waiting = new Map<string, { ask: Ask; told: ((may: boolean) => void)[] }>();
let sending: ReturnType<typeof setTimeout> | undefined;

function forgetAnswers(): void {
  answers.clear();
}

function keyOf(ask: Ask): string {
  return [ask.cluster, ask.namespace ?? "", ask.resource, ask.verb].join("\n");
}

/** Whether one may do something. Asks of one moment go in one request; what is unknown is a no. */
export function can(ask: Ask): Promise<boolean> {
  const key = keyOf(ask);
  const known = answers.get(key);
  if (known !== undefined) return Promise.resolve(known);
  return new Promise((resolve) => {
    const entry = waiting.get(key) ?? { ask, told: [] };
    entry.told.push(resolve);
    waiting.set(key, entry);
    sending ??= setTimeout(() => void sendAsks(), 5);
  });
}

async function sendAsks(): Promise<void> {
  const batch = [...waiting.entries()];
  waiting = new Map();
  sending = undefined;
  let said: boolean[] = [];
  try {
    const asks = batch.map(([, { ask }]) => ({ ...ask, namespace: ask.namespace || undefined }));
    said = (await api.post<{ answers: boolean[] }>("/me/can", { asks })).answers;
    batch.forEach(([key], index) => answers.set(key, said[index] === true));
  } catch {
    // Unknown: a control that is not shown harms nobody, and the server decides in any case.
  }
  batch.forEach(([, { told }], index) => told.forEach((tell) => tell(said[index] === true)));
}

/** Whether one may do each of `asks`, in their order; false until it is known. */
export function useCan(asks: Ask[]): boolean[] {
  const key = asks.map(keyOf).join("\n\n");
  const [state, setState] = useState<{ key: string; may: boolean[] }>({ key: "", may: [] });
  useEffect(() => {
    let gone = false;
    void Promise.all(asks.map(can)).then((may) => {
      if (!gone) setState({ key, may });
    });
    return () => {
      gone = true;
    };
  }, [key]);
  const known = asks.map((ask) => answers.get(keyOf(ask)));
  return asks.map((_, index) => (state.key === key ? state.may[index] === true : known[index] === true));
}
