// @ts-check
// The one place where text becomes HTML. Both kinds are safe by what happens around them: the
// server cleaned the one, and the other has neither scripts nor an origin.

import { visible } from "./visible.js";

/** @typedef {{ createHTML(text: string): string }} Policy */

/** @type {Policy} */
const policy = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("inspector", { createHTML: (/** @type {string} */ text) => text })
  ?? { createHTML: (text) => text };

/**
 * HTML that this server drew (`POST /api/v1/draw`).
 * @param {string} html
 * @returns {DocumentFragment}
 */
export function drawnHtml(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

/**
 * A document of an agent, in a frame without scripts, forms, links to this page, an origin, or anything to load.
 * @param {string} html
 * @param {string} title
 */
export function sandboxed(html, title) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "");
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.setAttribute("loading", "lazy");
  frame.title = visible(title);
  frame.srcdoc = policy.createHTML(`<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:">${withoutHints(html)}`);
  return frame;
}

/**
 * A policy does not keep a browser from connecting to a place that a document recommends.
 * @param {string} html
 */
function withoutHints(html) {
  const document = new DOMParser().parseFromString(/** @type {any} */ (policy.createHTML(html)), "text/html");
    for (const hint of document.querySelectorAll("link, meta, base")) hint.remove();
  return document.documentElement.outerHTML;
}
