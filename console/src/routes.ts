/** Every page: its path, its title, and the code that is fetched when it is opened. */
import type { ComponentType } from "preact";
import { t } from "./language";
import { match, type Params } from "./router";

export interface PageProps {
  /** The parts of the path, decoded. */
  params: Params;
}

export interface Page {
  pattern: string;
  title: (params: Params) => string;
  load: () => Promise<{ default: ComponentType<PageProps> }>;
}

/** In the order in which they are tried. */
export const pages: Page[] = [
  { pattern: "/", title: () => t("Fleet"), load: () => import("./pages/fleet/fleet") },
  { pattern: "/c/:cluster", title: ({ cluster }) => cluster ?? "", load: () => import("./pages/cluster/cluster") },
  { pattern: "/c/:clusters/:kind", title: ({ kind }) => kind ?? "", load: () => import("./pages/explore/explore") },
  { pattern: "/c/:cluster/:kind/:namespace/:name", title: ({ name }) => name ?? "", load: () => import("./pages/object/object") },
  { pattern: "/search", title: () => t("Search"), load: () => import("./pages/search/search") },
  { pattern: "/map", title: () => t("Map"), load: () => import("./pages/map/map") },
  { pattern: "/events", title: () => t("Events"), load: () => import("./pages/events/events") },
  { pattern: "/now", title: () => t("Now"), load: () => import("./pages/now/now") },
  { pattern: "/traffic", title: () => t("Traffic"), load: () => import("./pages/traffic/traffic") },
  { pattern: "/mesh", title: () => t("Mesh"), load: () => import("./pages/mesh/mesh") },
  { pattern: "/admission", title: () => t("Admission"), load: () => import("./pages/admission/admission") },
  { pattern: "/images", title: () => t("Images"), load: () => import("./pages/images/images") },
  { pattern: "/policies", title: () => t("Policies"), load: () => import("./pages/policies/policies") },
  { pattern: "/receivers", title: () => t("Receivers"), load: () => import("./pages/receivers/receivers") },
  { pattern: "/net", title: () => t("Net"), load: () => import("./pages/net/net") },
  { pattern: "/doctor", title: () => t("Doctor"), load: () => import("./pages/doctor/doctor") },
  { pattern: "/create", title: () => t("Create"), load: () => import("./pages/create/create") },
  { pattern: "/replay", title: () => t("Replay"), load: () => import("./pages/replay/replay") },
  { pattern: "/access", title: () => t("Access"), load: () => import("./pages/access/access") },
];

export function find(path: string): { page: Page; params: Params } | null {
  for (const page of pages) {
    const params = match(page.pattern, path);
    if (params) return { page, params };
  }
  return null;
}
