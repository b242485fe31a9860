/** Adds a receiver, or changes one. Secrets go in and never come out. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import type { ReceiverState } from "../../api/schema";
import { t } from "../../language";
import { Dialog } from "../../parts/dialog";
import { ProblemNotice } from "../../parts/problem";
import { toast } from "../../parts/toast";
import { specOf, typeOf, TYPES, type Spec } from "./spec";

function present(spec: Spec, type: string): Record<string, string> {
  const own = (spec[type] ?? {}) as Spec;
  return Object.fromEntries(Object.entries(own).map(([key, value]) => [key, Array.isArray(value) ? value.join(", ") : String(value)]));
}

export function ReceiverDialog({ receiver, onClose }: { receiver: ReceiverState | null; onClose: (changed: boolean) => void }) {
  const before: Spec = receiver?.spec ?? {};
  const [name, setName] = useState(receiver?.name ?? "");
  const [type, setType] = useState(typeOf(before));
  const [typed, setTyped] = useState(present(before, type));
  const [disabled, setDisabled] = useState(before["disabled"] === true);
  const [problem, setProblem] = useState<unknown>(null);
  const hasSecret = before["secret"] !== undefined && before[type] !== undefined;
  const save = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      await api.put(path`/receivers/${name}`, specOf(type, typed, before, disabled));
      toast(receiver ? t("{name} is changed. Test it to see whether it takes notifications.", { name }) : t("{name} is added. Test it to see whether it takes notifications.", { name }));
      onClose(true);
    } catch (error) {
      setProblem(error);
    }
  };
  const title = receiver ? t("Receiver {name}", { name: receiver.name }) : t("Add a receiver");
  return (
    <Dialog title={title} onClose={() => onClose(false)}>
      <form onSubmit={(event) => void save(event)}>
        <h1 class="break">{title}</h1>
        {!receiver && <label class="label">{t("Name")}<input class="field" required autofocus pattern="[a-z0-9]([\-a-z0-9]*[a-z0-9])?" title={t("small letters, digits and dashes")} value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>}
        <label class="label">
          {t("Type")}
          <select class="select" value={type} onChange={(event) => { setType(event.currentTarget.value); setTyped(present(before, event.currentTarget.value)); }}>
            {Object.entries(TYPES).map(([key, { title: text }]) => <option key={key} value={key}>{text}</option>)}
          </select>
        </label>
        {TYPES[type]?.fields.map(({ key, title: text, placeholder, required, choices, secret }) => (
          <label key={`${type} ${key}`} class="label">
            {text}
            {choices ? (
              <select class="select" value={typed[key] ?? choices[0]} onChange={(event) => setTyped({ ...typed, [key]: event.currentTarget.value })}>
                {choices.map((choice) => <option key={choice} value={choice}>{choice}</option>)}
              </select>
            ) : (
              <input
                class="field"
                type={(secret ? "password" : "text") as "password"}
                autocomplete="off"
                spellcheck={false}
                required={(required ?? false) && !(secret && hasSecret)}
                placeholder={secret && hasSecret ? t("stays as it is") : (placeholder ?? "")}
                value={typed[key] ?? ""}
                onInput={(event) => setTyped({ ...typed, [key]: event.currentTarget.value })}
              />
            )}
          </label>
        ))}
        <label class="row"><input type="checkbox" class="check" checked={disabled} onChange={() => setDisabled(!disabled)} /> {t("Send it nothing for now")}</label>
        {problem !== null && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={() => onClose(false)}>{t("Cancel")}</button>
          <button type="submit" class="button primary">{receiver ? t("Change") : t("Add")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
