// @ts-check
// JSON and plain values, shortened to what a person can read, with the whole of it a click away.

import { h } from "../base/dom.js";
import { copyButton } from "./copy.js";
import { plural } from "../base/time.js";

const HEAD_CHARACTERS = 3_000;
const TAIL_CHARACTERS = 1_000;

/** @param {unknown} value */
export function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
}

/**
 * A block of text. Of a long one, the middle is hidden until a click shows it.
 * @param {string} text
 * @param {string} label
 * @param {string} [className]
 */
export function textBlock(text, label, className = "block") {
  const copy = copyButton(() => text, `Copy: ${label}`);
  const block = (/** @type {import("../base/dom.js").Child[]} */ ...content) => h("div.code.bare", null, h("pre", { tabindex: 0, "aria-label": label, role: "region", class: className }, content), copy);
  const hidden = text.length - HEAD_CHARACTERS - TAIL_CHARACTERS;
  if (hidden <= 0) return block(text);
  const box = block(text.slice(0, HEAD_CHARACTERS), h("span.omission", null, `… ${plural(hidden, "character")} are hidden …`), text.slice(-TAIL_CHARACTERS));
  // `data-hidden` keeps a question from being answered: see question.js.
  const more = h("button.quiet", { type: "button", "data-hidden": true }, `Show all ${plural(text.length, "character")}`);
  more.addEventListener("click", () => box.replaceWith(block(text)));
  box.append(more);
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
