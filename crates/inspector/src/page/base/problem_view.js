// @ts-check

import { h } from "./dom.js";
import { Problem } from "./api.js";

/**
 * Shows an error, its code, and what to do next.
 * @param {unknown} error
 */
export function problemView(error) {
  if (!(error instanceof Problem)) {
    console.error(error);
    return h("div.failure", null, h("strong", null, "The page failed"), h("p", null, error instanceof Error ? error.message : String(error)));
  }
  return h("div.failure", null, h("p", null, error.message), error.hint && h("p", null, error.hint), h("p.muted", null, "Code ", h("code", null, error.code)));
}

/** Shows that this page has more events than the server, so that only a reload can continue. */
export function reloadView() {
  const reload = h("button.primary", { type: "button", on: { click: () => location.reload() } }, "Reload");
  return h("div.failure", null, h("p", null, "This page shows events that the server does not have. The server may have been restored from a backup."), h("p", null, "Reload the page to continue with what the server has."), reload);
}
