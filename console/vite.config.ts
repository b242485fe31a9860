import { defineConfig } from "vite";

// `npm run dev` serves the sources and passes the API on to a Fairlead on this machine.
const api = process.env.FAIRLEAD_API ?? "http://127.0.0.1:7680";

export default defineConfig({
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    // A data: address would have to be allowed by the content security policy.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    manifest: true,
  },
  worker: { format: "es" },
  server: { proxy: { "/api": { target: api, ws: true }, "/login": api, "/auth": api } },
});
