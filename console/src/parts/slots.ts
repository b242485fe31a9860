/**
 * Which element shows which row. A row keeps its element while it is in sight, so that a click that
 * begins on one row never ends on another that has moved into its place; elements of rows that left
 * are used again for those that come, because making new ones is what costs.
 */
export function assignSlots(before: ReadonlyMap<string, number>, rows: string[]): Map<string, number> {
  const after = new Map<string, number>();
  const taken = new Set<number>();
  for (const row of rows) {
    const slot = before.get(row);
    if (slot === undefined || taken.has(slot)) continue;
    after.set(row, slot);
    taken.add(slot);
  }
  let free = 0;
  for (const row of rows) {
    if (after.has(row)) continue;
    while (taken.has(free)) free++;
    after.set(row, free);
    taken.add(free);
  }
  return after;
}
