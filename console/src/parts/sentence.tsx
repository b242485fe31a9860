/** A sentence of the API's: what it has between backticks is code. */
export function Sentence({ text }: { text: string }) {
  return <span class="muted">{text.split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}</span>;
}
