// @ts-check
// The only place where text becomes HTML. Both kinds are safe for another reason: the
// server cleans the first, and the second has neither scripts nor an origin.

import { visible } from "./visible.js";

/** @typedef {{ createHTML(text: string): string }} Policy */

/** @type {Policy} */
const policy = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("inspector", { createHTML: (/** @type {string} */ text) => text })
  ?? { createHTML: (text) => text };

/**
 * Converts HTML that this server rendered (`POST /api/v1/draw`).
 * @param {string} html
 * @returns {DocumentFragment}
 */
export function drawnHtml(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

/**
 * Shows an agent's document in a frame without scripts, forms, links to this page, an origin, and external resources.
 * @param {string} html
 * @param {string} title
 */
export function sandboxed(html, title) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "");
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.setAttribute("loading", "lazy");
  frame.title = visible(title);
  frame.srcdoc = policy.createHTML(`<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:">${listedOnly(html)}`);
  return frame;
}

const XHTML = "http://www.w3.org/1999/xhtml";
const ELEMENTS = new Set("a abbr address article aside b bdi bdo blockquote body br caption cite code col colgroup data dd del details dfn div dl dt em figcaption figure footer h1 h2 h3 h4 h5 h6 head header hr html i img ins kbd li main mark nav ol p pre q rp rt ruby s samp section small span strong sub summary sup table tbody td tfoot th thead time tr u ul var wbr".split(" "));
/** Elements whose content is not text for a reader. */
const WITHOUT_TEXT = new Set("embed frame frameset iframe link meta base noembed noframes noscript object script style template title".split(" "));
const ATTRIBUTES = new Set("align alt colspan datetime dir height href lang open rowspan scope span src start title value width".split(" "));

/**
 * Keeps only listed elements and attributes. A policy is not enough: browsers still load a frame
 * inside a frame, and connect to hosts that a document recommends.
 * @param {string} html
 */
function listedOnly(html) {
  const document = new DOMParser().parseFromString(/** @type {any} */ (policy.createHTML(html)), "text/html");
  for (const element of [...document.querySelectorAll("*")]) {
    if (element.namespaceURI !== XHTML || WITHOUT_TEXT.has(element.localName)) element.remove();
    else if (!ELEMENTS.has(element.localName)) element.replaceWith(...element.childNodes);
    else for (const { name, value } of [...element.attributes]) if (!isListed(name, value)) element.removeAttribute(name);
  }
  return document.documentElement.outerHTML;
}

/** @param {string} name @param {string} value */
function isListed(name, value) {
  if (name === "src") return /^data:image\//i.test(value);
  if (name === "href") return /^(?:https?:|mailto:)/i.test(value);
  return ATTRIBUTES.has(name);
}
