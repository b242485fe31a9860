/** A kubeconfig of this session: kubectl then asks Fairlead, within one's roles, until the session ends. */
import { api } from "./api/client";
import { locale, t } from "./language";
import { download } from "./parts/download";
import { toast, toastProblem } from "./parts/toast";

interface Made {
  kubeconfig: string;
  expires: string;
  contexts: string[];
}

/** Of these clusters; none named: of all that one may see. */
export async function downloadKubeconfig(clusters: string[] = []): Promise<void> {
  try {
    const made = await api.post<Made>("/me/kubeconfig", { server: location.origin, clusters });
    const name = clusters.length === 1 ? `fairlead-${clusters[0]?.replaceAll(/[^A-Za-z0-9.-]/g, "-")}` : "fairlead";
    download(`${name}.kubeconfig`, made.kubeconfig, "application/yaml");
    const until = new Date(made.expires).toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
    toast(t("{what}; it is good until {until}, or until you log out.", { what: made.contexts.length === 1 ? t("The context is {contexts}", { contexts: made.contexts[0] }) : t("It has {count} contexts, from {contexts} on", { count: made.contexts.length, contexts: made.contexts[0] }), until }), "ok", `kubectl --kubeconfig ${name}.kubeconfig get pods`);
  } catch (error) {
    toastProblem(error, t("No kubeconfig was made"));
  }
}
