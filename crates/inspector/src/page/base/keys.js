// @ts-check
// Keyboard shortcuts of the whole page. Letters have no effect in a text field.

import { h } from "./dom.js";

/** @typedef {{ keys: string, label: string, run: () => void }} Shortcut */

const SEQUENCE_MS = 1_200;

/** @type {Shortcut[]} */
const shortcuts = [];

/** @param {EventTarget | null} target */
function isWriting(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !/^(?:checkbox|radio|range|button)$/.test(/** @type {HTMLInputElement} */ (target).type ?? "");
}

/** @param {Shortcut} shortcut */
export const addShortcut = (shortcut) => shortcuts.push(shortcut);

export function startKeys() {
  let before = "";
  let timer = 0;
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && isWriting(event.target)) {
      /** @type {HTMLElement} */ (event.target).blur();
      return;
    }
    if (isWriting(event.target) || document.querySelector("dialog[open]")) return;
    const pressed = before ? `${before} ${event.key}` : event.key;
    const shortcut = shortcuts.find((it) => it.keys === pressed);
    clearTimeout(timer);
    before = "";
    if (shortcut) {
      event.preventDefault();
      shortcut.run();
    } else if (shortcuts.some((it) => it.keys.startsWith(`${event.key} `))) {
      before = event.key;
      timer = setTimeout(() => (before = ""), SEQUENCE_MS);
    }
  });
  addShortcut({ keys: "?", label: "Show these keys", run: showKeys });
}

export function showKeys() {
  const rows = [
    ...shortcuts.map(({ keys, label }) => ({ keys: keys.split(" "), label })),
    { keys: ["Enter"], label: "Send the message" },
    { keys: ["Shift", "Enter"], label: "New line in a message" },
    { keys: ["Esc"], label: "Leave a field, close a dialog" },
  ];
  const close = h("button", { type: "button" }, "Close");
  const dialog = h("dialog", { "aria-labelledby": "keys-title" }, h("h2", { id: "keys-title" }, "Keys"), h("dl.keys", null, rows.map(({ keys, label }) => h("div", null, h("dt", null, keys.map((key) => h("kbd", null, key))), h("dd", null, label)))), close);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * Moves the focus to the next or previous matching element, for `j` and `k`.
 * @param {string} selector
 * @param {number} by
 */
export function moveFocus(selector, by) {
  const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(selector)]).filter((it) => it.offsetParent !== null);
  if (all.length === 0) return;
  const at = all.findIndex((it) => it === document.activeElement || it.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  all[next].focus();
}
