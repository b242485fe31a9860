/** What can be done with the selected rows; only what one may do to all of them is offered. */
import { cordon, remove, restart, scale, useVerbs } from "../../actions/actions";
import { drain, DrainProgress } from "../../actions/drain";
import type { ObjectPlace } from "../../places";

export function BulkBar(props: { kind: string; places: ObjectPlace[]; matched: number; onAll: () => void; onClear: () => void }) {
  const { kind, places } = props;
  const may = useVerbs(kind, places);
  return (
    <div class="bulk" role="toolbar" aria-label="Selected rows">
      <strong class="number">{places.length.toLocaleString("en")} selected</strong>
      {places.length < props.matched && (
        <button type="button" class="button quiet" onClick={props.onAll}>Select all {props.matched.toLocaleString("en")}</button>
      )}
      <span class="grow" />
      {may.has("scale") && <button type="button" class="button" onClick={() => scale(places, kind, null)}>Scale…</button>}
      {may.has("restart") && <button type="button" class="button" onClick={() => restart(places, kind)}>Restart…</button>}
      {may.has("cordon") && (
        <>
          <button type="button" class="button" onClick={() => cordon(places, true)}>Cordon…</button>
          <button type="button" class="button" onClick={() => cordon(places, false)}>Uncordon…</button>
        </>
      )}
      {may.has("drain") && <button type="button" class="button" onClick={() => drain(places)}>Drain…</button>}
      {may.has("delete") && <button type="button" class="button danger" onClick={() => remove(places, kind, props.onClear)}>Delete…</button>}
      <button type="button" class="button quiet" onClick={props.onClear}>Clear</button>
      <DrainProgress />
    </div>
  );
}
