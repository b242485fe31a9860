/** Keeps the page at hand: an object as a favourite, a table with its filter as a saved search. */
import { signal } from "@preact/signals";
import { t } from "../language";
import { address } from "../router";
import { forget, isSaved, save } from "../saved";
import { confirm } from "./dialog";
import { Star as Icon } from "./icons";
import { toast } from "./toast";

function here(): string {
  const { path, query } = address.value;
  const text = query.toString();
  return path + (text ? `?${text}` : "");
}

function Button({ on, label, onClick }: { on: boolean; label: string; onClick: () => void }) {
  return (
    <button type="button" class={`button quiet icon star${on ? " on" : ""}`} aria-pressed={on} aria-label={label} title={label} onClick={onClick}>
      <Icon />
    </button>
  );
}

/** A favourite, under its own name. */
export function Favourite({ href, title, note }: { href: string; title: string; note?: string }) {
  const on = isSaved(href);
  return <Button on={on} label={t("Favourite")} onClick={() => (on ? forget(href) : save({ href, title, ...(note ? { note } : {}) }))} />;
}

/** The table as it is: clusters, namespaces, filter, order. Asked for a name. */
export function SaveSearch({ title, note }: { title: string; note?: string }) {
  const href = here();
  const on = isSaved(href);
  const ask = () => {
    const name = signal(title);
    confirm({
      title: t("Save this search"),
      text: t("It is kept in this browser, in the sidebar and under ⌘K. A copied address does the same for others."),
      fields: (
        <label class="label">
          {t("Name")}
          <input class="field" required maxLength={80} autofocus defaultValue={title} onInput={(event) => { name.value = event.currentTarget.value; }} />
        </label>
      ),
      verb: t("Save"),
      run: () => {
        save({ href, title: name.value.trim() || title, ...(note ? { note } : {}) });
        toast(t("Saved."));
      },
    });
  };
  return <Button on={on} label={on ? t("Forget this search") : t("Save this search")} onClick={() => (on ? forget(href) : ask())} />;
}
