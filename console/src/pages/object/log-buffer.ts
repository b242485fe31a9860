/** The lines of a log that the page keeps: the newest, up to a bound. */
import type { LogLine } from "../../live/protocol";

/** About 40 MB of usual lines; older ones are in the download. */
const MOST = 200_000;

/** Escapes that colour a terminal, and what else would not be shown as text. */
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

export class LogBuffer {
  /** How many lines have been let go. */
  first = 0;
  /** Changes with every line. */
  version = 0;
  #lines: LogLine[] = [];

  get length(): number {
    return this.#lines.length;
  }

  /** All lines that have come. */
  get total(): number {
    return this.first + this.#lines.length;
  }

  at(index: number): LogLine | undefined {
    return this.#lines[index];
  }

  add(lines: LogLine[]): void {
    for (const line of lines) {
      this.#lines.push(line.text.includes("\u001b") ? { ...line, text: line.text.replace(ESCAPES, "") } : line);
    }
    this.version++;
    // In large steps: each moves the rest.
    if (this.#lines.length > MOST * 1.1) {
      const over = this.#lines.length - MOST;
      this.#lines.splice(0, over);
      this.first += over;
    }
  }

  /** The lines that have a text, by their place. */
  find(text: string): number[] {
    if (!text) return [];
    const needle = text.toLowerCase();
    const found: number[] = [];
    this.#lines.forEach((line, index) => {
      if (line.text.toLowerCase().includes(needle) || line.pod.includes(text)) found.push(index);
    });
    return found;
  }
}
