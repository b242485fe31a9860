/** How well a text fits what was typed: 0 is not at all. */
export function score(text: string, wanted: string): number {
  if (!wanted) return 1;
  const [hay, needle] = [text.toLowerCase(), wanted.toLowerCase()];
  if (hay === needle) return 100;
  if (hay.split(/[\s/]+/).includes(needle)) return 90;
  if (hay.startsWith(needle)) return 80 - Math.min(20, hay.length - needle.length);
  const at = hay.indexOf(needle);
  if (at >= 0) return /[\s./-]/.test(hay[at - 1] ?? "") ? 50 : 40;
  // The letters in their order: `dpl` finds deployments.
  let from = 0;
  for (const letter of needle) {
    from = hay.indexOf(letter, from) + 1;
    if (!from) return 0;
  }
  return needle.length > 1 ? 10 : 0;
}
