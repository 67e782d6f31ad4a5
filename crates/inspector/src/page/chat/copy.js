// @ts-check

import { h } from "../base/dom.js";
import { announce } from "../base/announce.js";

/**
 * Builds a button that copies a text.
 * @param {() => string} text
 * @param {string} label
 */
export function copyButton(text, label) {
  const button = h("button.copy", { type: "button", "aria-label": label }, "Copy");
  let timer = 0;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
      announce("Copied");
    } catch {
      button.textContent = "Not allowed";
    }
    clearTimeout(timer);
    timer = setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}
