/**
 * The editor of YAML: CodeMirror, in a shadow root.
 *
 * In a shadow root its styles are constructed sheets, which the content security policy allows; in the
 * page itself they would be `<style>` elements, which it does not.
 */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { codeFolding, foldGutter, foldKeymap, HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { unifiedMergeView } from "@codemirror/merge";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { t } from "../../language";

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--syntax-key)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--syntax-string)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--syntax-number)" },
  { tag: [tags.comment, tags.meta], color: "var(--syntax-comment)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", fontSize: "12.5px", backgroundColor: "var(--panel)", color: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--faint)", border: "0" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--hover) 60%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 26%, transparent) !important" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--sunken)", border: "0", color: "var(--muted)", padding: "0 6px" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-panels input, .cm-panels button": { font: "inherit" },
  ".cm-textfield": { backgroundColor: "var(--panel)", border: "1px solid var(--line-strong)", borderRadius: "4px", color: "var(--text)" },
  ".cm-button": { backgroundImage: "none", backgroundColor: "var(--raised)", border: "1px solid var(--line-strong)", borderRadius: "4px", color: "var(--text)" },
  ".cm-searchMatch": { backgroundColor: "var(--warn-ground)", outline: "1px solid var(--warn)" },
  ".cm-searchMatch-selected": { backgroundColor: "color-mix(in srgb, var(--warn) 40%, transparent)" },
  ".cm-changedLine, .cm-insertedLine": { backgroundColor: "var(--ok-ground) !important" },
  ".cm-changedText": { background: "color-mix(in srgb, var(--ok) 28%, transparent) !important" },
  ".cm-deletedChunk": { backgroundColor: "var(--bad-ground) !important", paddingLeft: "6px" },
  ".cm-deletedChunk .cm-deletedText, .cm-deletedText": { background: "color-mix(in srgb, var(--bad) 28%, transparent) !important" },
  ".cm-changeGutter .cm-changedLineGutter": { background: "var(--ok)" },
  ".cm-collapsedLines": { background: "var(--sunken)", color: "var(--muted)" },
  ".cm-collapsedLines::before, .cm-collapsedLines::after": { content: '"…"' },
  ".cm-deletedLineGutter": { background: "var(--bad)" },
});

export { merge } from "./merge";

export interface Editor {
  text: () => string;
  setText: (text: string) => void;
  setReadOnly: (readOnly: boolean) => void;
  /** Shows the text as changes of another; null shows the text alone. */
  compareWith: (original: string | null) => void;
  focus: () => void;
  destroy: () => void;
}

export function openEditor(host: HTMLElement, text: string, onChange: (text: string) => void): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const writable = new Compartment();
  const compared = new Compartment();
  const locked = (readOnly: boolean): Extension => [
    EditorState.readOnly.of(readOnly),
    EditorView.contentAttributes.of({ "aria-label": readOnly ? t("YAML, read only") : "YAML", "aria-readonly": String(readOnly), tabindex: "0" }),
  ];
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        foldGutter(),
        codeFolding(),
        history(),
        drawSelection(),
        highlightActiveLine(),
        highlightSelectionMatches(),
        search({ top: true }),
        indentUnit.of("  "),
        yaml(),
        syntaxHighlighting(colours),
        look,
        keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, ...foldKeymap, indentWithTab]),
        writable.of(locked(true)),
        compared.of([]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onChange(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    setText: (next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    setReadOnly: (readOnly) => view.dispatch({ effects: writable.reconfigure(locked(readOnly)) }),
    compareWith: (original) =>
      view.dispatch({
        effects: compared.reconfigure(
          original === null ? [] : unifiedMergeView({ original, mergeControls: false, gutter: true, collapseUnchanged: { margin: 3, minSize: 6 } }),
        ),
      }),
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}
