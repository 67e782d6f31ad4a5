// @ts-check
// A table with a heading. A wide table scrolls by itself.

import { h } from "../base/dom.js";

/**
 * Returns nothing without rows.
 * @param {string} title
 * @param {string[]} columns
 * @param {any[][]} rows
 */
export function dataTable(title, columns, rows) {
  if (rows.length === 0) return null;
  return h("section", null, h("h2", null, title), h("div.scroll", { tabindex: 0, role: "region", "aria-label": title }, h("table.data", null, h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell))))))));
}
