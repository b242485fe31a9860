/** A unified difference, as the API server would make it. */
import { t } from "../language";

export function Diff({ text, class: name = "diff-text" }: { text: string; class?: string }) {
  const lines = text.split("\n").filter((line) => !/^(---|\+\+\+) /.test(line));
  const kind = (line: string) => (line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "place" : "");
  return (
    <div class={name} tabIndex={0} role="region" aria-label={t("What would change")}>
      {lines.map((line, index) => <div key={index} class={kind(line)}>{line || " "}</div>)}
    </div>
  );
}
