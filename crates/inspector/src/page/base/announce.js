// @ts-check
// Announces messages to screen readers.

import { h } from "./dom.js";
import { visible } from "./visible.js";

const region = h("div.sr-only", { role: "status", "aria-live": "polite" });
document.body.append(region);

/** @param {string} text */
export function announce(text) {
  // Screen readers do not read an unchanged text again, so a repeated message gets a full stop.
  const said = visible(text);
  region.textContent = region.textContent === said ? `${said}.` : said;
}
