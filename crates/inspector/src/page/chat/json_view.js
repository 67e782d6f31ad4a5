// @ts-check
// JSON and plain values, shortened for people. A click shows the whole value.

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
 * Builds a block of text. In a long text, the middle is hidden until a click.
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
  // `data-hidden` prevents answers to a question: see question.js.
  const more = h("button.quiet", { type: "button", "data-hidden": true }, `Show all ${plural(text.length, "character")}`);
  more.addEventListener("click", () => box.replaceWith(block(text)));
  box.append(more);
  return box;
}

/**
 * Builds a value with a heading above it. Returns nothing without a value.
 * @param {string} label
 * @param {unknown} value
 */
export function labelled(label, value) {
  if (value === undefined || value === null) return null;
  return h("div.labelled", null, h("h5", null, label), textBlock(pretty(value), label));
}
