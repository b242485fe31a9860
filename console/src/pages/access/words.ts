/** Rules of roles, in words. */
import type { Rule } from "../../api/schema";
import { t } from "../../language";

/** One rule as a sentence. */
export function words({ clusters, namespaces, resources, verbs }: Rule): string {
  const names = (items: string[]) => items.join(", ");
  const fleet = clusters.length === 1 && clusters[0] === "-";
  const does = verbs.includes("*") ? t("do everything with") : verbs.join(", ");
  const what = resources.includes("*") ? t("everything") : resources.join(", ");
  if (fleet) return t("{does} {what} of the fleet itself", { does, what });
  const within = namespaces.includes("*") ? t("all namespaces") : namespaces.length > 1 ? t("namespaces {names}", { names: names(namespaces) }) : t("namespace {names}", { names: names(namespaces) });
  const of = clusters.includes("*") ? t("all clusters") : clusters.length > 1 ? t("clusters {names}", { names: names(clusters) }) : t("cluster {names}", { names: names(clusters) });
  return t("{does} {what}, in {within} of {of}", { does, what, within, of });
}
