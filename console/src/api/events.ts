/** Server-sent events of a request that changes something: `EventSource` can only read. */

export interface ServerEvent {
  event: string;
  data: unknown;
}

/** The whole events in a text, and what is left of the last one. */
export function parseEvents(text: string): { events: ServerEvent[]; rest: string } {
  const blocks = text.replaceAll("\r\n", "\n").split("\n\n");
  const rest = blocks.pop() ?? "";
  const events = blocks.flatMap((block): ServerEvent[] => {
    const lines = block.split("\n");
    const field = (name: string) => lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ""));
    const data = field("data").join("\n");
    if (!data) return [];
    try {
      return [{ event: field("event")[0] ?? "message", data: JSON.parse(data) as unknown }];
    } catch {
      return [];
    }
  });
  return { events, rest };
}

/** Reads the events of an answer as they come. */
export async function readEvents(response: Response, take: (event: ServerEvent) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const piece = await reader?.read();
    if (!piece || piece.done) return;
    const parsed = parseEvents(rest + piece.value);
    rest = parsed.rest;
    parsed.events.forEach(take);
  }
}
