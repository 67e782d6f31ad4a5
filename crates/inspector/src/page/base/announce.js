// @ts-check
// Says things to those who listen to the page instead of looking at it.

import { h } from "./dom.js";
import { visible } from "./visible.js";

const region = h("div.sr-only", { role: "status", "aria-live": "polite" });
document.body.append(region);

/** @param {string} text */
export function announce(text) {
  // The same text twice is no change, and would be silent.
  const said = visible(text);
  region.textContent = region.textContent === said ? `${said}.` : said;
}
