/** Adds clusters by their kubeconfig: dropped on the page, chosen as a file, or pasted. */
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { explain } from "../../api/problem";
import type { Imported } from "../../api/schema";
import { rich, t } from "../../language";
import { Dialog } from "../../parts/dialog";
import { toast, toastProblem } from "../../parts/toast";
import { contexts } from "./kubeconfig";

const LARGEST = 1 << 20;

/** Takes a kubeconfig that is dropped; null takes none. */
export function useDrop(take: ((text: string) => void) | null) {
  const [over, setOver] = useState(false);
  if (!take) return { over: false, on: {} };
  return {
    over,
    on: {
      onDragOver: (event: DragEvent) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        setOver(true);
      },
      onDragLeave: (event: DragEvent) => {
        if (event.target === event.currentTarget) setOver(false);
      },
      onDrop: (event: DragEvent) => {
        event.preventDefault();
        setOver(false);
        const file = event.dataTransfer?.files[0];
        if (file) read(file, take);
      },
    },
  };
}

function read(file: File, take: (text: string) => void): void {
  if (file.size > LARGEST) {
    toast(t("{name} is larger than a kubeconfig may be (1 MB).", { name: file.name }), "bad");
    return;
  }
  file.text().then(take, (error: unknown) => toastProblem(error, t("{name} cannot be read", { name: file.name })));
}

interface Result {
  context: string;
  done?: string;
  failed?: string;
}

export function ImportDialog({ text: given, onClose }: { text: string; onClose: () => void }) {
  const [text, setText] = useState(given);
  const [chosen, setChosen] = useState<Record<string, string>>({});
  const [results, setResults] = useState<Result[]>([]);
  const [busy, setBusy] = useState(false);
  const found = contexts(text);
  const names = found.map((context) => ({ context, name: chosen[context] ?? suggested(context) }));
  const wanted = names.filter(({ name }) => name);

  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    const results: Result[] = [];
    for (const { context, name } of wanted) {
      try {
        const added = await api.post<Imported>("/clusters", { name, kubeconfig: text, context });
        results.push({ context, done: added.name });
      } catch (error) {
        const { sentence, todo } = explain(error);
        results.push({ context, failed: todo ? `${sentence} ${todo}` : sentence });
      }
      setResults([...results]);
    }
    setBusy(false);
    const failed = results.filter((one) => one.failed);
    if (!failed.length && results.length) {
      toast(results.length === 1 ? t("{done} is added.", { done: results[0]?.done ?? "" }) : t("{count} clusters are added.", { count: results.length }));
      onClose();
    }
  };

  return (
    <Dialog title={t("Add clusters")} wide onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <h1>{t("Add clusters")}</h1>
        <p class="muted">
          {t("Drop a kubeconfig, choose a file, or paste its text. It is kept by Fairlead, readable by nobody else, and never shown again.")}
        </p>
        <div
          class="row"
          onDragOver={(event) => event.preventDefault()}
          onDrop={(event) => {
            event.preventDefault();
            const file = event.dataTransfer?.files[0];
            if (file) read(file, setText);
          }}
        >
          <label class="button">
            {t("Choose a file")}
            <input
              type="file"
              class="hidden"
              onChange={(event) => {
                const file = event.currentTarget.files?.[0];
                if (file) read(file, setText);
              }}
            />
          </label>
          {text && <button type="button" class="button quiet" onClick={() => setText("")}>{t("Clear")}</button>}
        </div>
        <textarea
          class="field mono"
          rows={text ? 5 : 8}
          aria-label="Kubeconfig"
          placeholder={"apiVersion: v1\nkind: Config\nclusters: …"}
          spellcheck={false}
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        {text && !found.length && <p class="warn-text">{t("No context is found in this text. A kubeconfig has a list `contexts`.")}</p>}
        {names.map(({ context, name }) => {
          const result = results.find((one) => one.context === context);
          return (
            <label key={context} class="label">
              <span>{rich("Context {context} is to be called", { context: <code class="break">{context}</code> })}</span>
              <input
                class="field"
                value={name}
                placeholder={t("leave empty to skip it")}
                onInput={(event) => setChosen({ ...chosen, [context]: event.currentTarget.value.trim() })}
              />
              {result?.failed && <span class="bad-text break">{result.failed}</span>}
              {result?.done && <span class="ok-text">{t("added")}</span>}
            </label>
          );
        })}
        <footer>
          <button type="button" class="button" onClick={onClose}>{t("Cancel")}</button>
          <button type="submit" class="button primary" disabled={busy || !wanted.length}>
            {busy ? t("Adding…") : wanted.length > 1 ? t("Add {count} clusters", { count: wanted.length }) : t("Add")}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** A name that a cluster may have, made of its context's. */
function suggested(context: string): string {
  return context
    .toLowerCase()
    .replace(/^.*[/:@]/, "")
    .replace(/[^a-z0-9.-]+/g, "-")
    .replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, "")
    .slice(0, 63);
}
