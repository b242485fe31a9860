/** What can be done with the selected rows; only what one may do to all of them is offered. */
import { cordon, remove, restart, scale, useVerbs } from "../../actions/actions";
import { drain, DrainProgress } from "../../actions/drain";
import { locale, t } from "../../language";
import type { ObjectPlace } from "../../places";

export function BulkBar(props: { kind: string; places: ObjectPlace[]; matched: number; onAll: () => void; onClear: () => void }) {
  const { kind, places } = props;
  const may = useVerbs(kind, places);
  return (
    <div class="bulk" role="toolbar" aria-label={t("Selected rows")}>
      <strong class="number">{t("{count} selected", { count: places.length.toLocaleString(locale) })}</strong>
      {places.length < props.matched && (
        <button type="button" class="button quiet" onClick={props.onAll}>{t("Select all {matched}", { matched: props.matched.toLocaleString(locale) })}</button>
      )}
      <span class="grow" />
      {may.has("scale") && <button type="button" class="button" onClick={() => scale(places, kind, null)}>{t("Scale…")}</button>}
      {may.has("restart") && <button type="button" class="button" onClick={() => restart(places, kind)}>{t("Restart…")}</button>}
      {may.has("cordon") && (
        <>
          <button type="button" class="button" onClick={() => cordon(places, true)}>{t("Cordon…")}</button>
          <button type="button" class="button" onClick={() => cordon(places, false)}>{t("Uncordon…")}</button>
        </>
      )}
      {may.has("drain") && <button type="button" class="button" onClick={() => drain(places)}>{t("Drain…")}</button>}
      {may.has("delete") && <button type="button" class="button danger" onClick={() => remove(places, kind, props.onClear)}>{t("Delete…")}</button>}
      <button type="button" class="button quiet" onClick={props.onClear}>{t("Clear")}</button>
      <DrainProgress />
    </div>
  );
}
