/** What is shown where something cannot be shown: why, and what to do. */
import type { ComponentChildren } from "preact";
import type { Fetched } from "../api/fetching";
import { explain } from "../api/problem";
import { ApiProblem } from "../api/problem";
import type { ProblemBody } from "../api/schema";
import { rich, t } from "../language";

export function ProblemNotice({ problem, again }: { problem: unknown; again?: (() => void) | undefined }) {
  const { sentence, todo, requestId, again: helps } = explain(problem);
  return (
    <div class="notice bad" role="alert">
      <div class="grow break">
        <p>{sentence}</p>
        {todo && <p class="muted">{todo}</p>}
        {requestId && <p class="faint small">{t("Request {requestId}", { requestId })}</p>}
      </div>
      {again && helps && (
        <button type="button" class="button" onClick={again}>
          {t("Try again")}
        </button>
      )}
    </div>
  );
}

export function bodyProblem(body: ProblemBody): ApiProblem {
  return new ApiProblem(body);
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Where clusters are to be looked at and there is none. */
export function NoCluster() {
  return <Empty title={t("There is no cluster")}><p>{rich("Add one on the page {link}.", { link: <a href="/">{t("Fleet")}</a> })}</p></Empty>;
}

/** Lines where text will be; shown only where an answer is due in a moment. */
export function Loading({ lines = 4, label = t("Loading") }: { lines?: number; label?: string }) {
  return (
    <div class="stack" role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} class="skeleton" style={{ width: `${90 - ((index * 23) % 45)}%` }} />
      ))}
    </div>
  );
}

/**
 * What was read, or why not. The last answer stays while a newer one is under way or fails; the failure
 * is said above it.
 */
export function Loaded<T>({ of, children }: { of: Fetched<T>; children: (data: T) => ComponentChildren }) {
  if (of.data === undefined) {
    return of.problem ? <ProblemNotice problem={of.problem} again={of.reload} /> : <Loading />;
  }
  return (
    <>
      {of.problem && <ProblemNotice problem={of.problem} again={of.reload} />}
      {children(of.data)}
    </>
  );
}
