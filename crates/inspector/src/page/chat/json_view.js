// @ts-check
// JSON and plain values, shortened to what a person can read, with the whole of it a click away.

import { h } from "../base/dom.js";
import { copyButton } from "./copy.js";
import { plural } from "../base/time.js";

const FIRST_CHARACTERS = 4_000;

/** @param {unknown} value */
export function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
}

/**
 * A block of text that scrolls by itself, shortened at first.
 * @param {string} text
 * @param {string} label
 * @param {string} [className]
 */
export function textBlock(text, label, className = "block") {
  const pre = h("pre", { tabindex: 0, "aria-label": label, role: "region", class: className }, text.slice(0, FIRST_CHARACTERS));
  const box = h("div.code.bare", null, pre);
  const copy = copyButton(() => text, `Copy: ${label}`);
  box.append(copy);
  if (text.length > FIRST_CHARACTERS) {
    const more = h("button.quiet", { type: "button" }, `Show all ${plural(text.length, "character")}`);
    more.addEventListener("click", () => {
      box.replaceWith(h("div.code.bare", null, h("pre", { tabindex: 0, "aria-label": label, role: "region", class: className }, text), copy));
    });
    box.append(more);
  }
  return box;
}

/**
 * A value with a heading above it; nothing where there is none.
 * @param {string} label
 * @param {unknown} value
 */
export function labelled(label, value) {
  if (value === undefined || value === null) return null;
  return h("div.labelled", null, h("h5", null, label), textBlock(pretty(value), label));
}
