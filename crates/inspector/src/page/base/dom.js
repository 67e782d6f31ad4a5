// @ts-check
// Builds elements. In strings, invisible characters become visible, and only addresses that are
// safe to click become links. All output of agents goes through this module.

import { visible, hasUnseen, unseenPieces } from "./visible.js";

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */
/** @typedef {Record<string, any>} Attributes */

const SVG = "http://www.w3.org/2000/svg";
const SAFE_ADDRESS = /^(?:https?:\/\/|mailto:|blob:|#)/i;

/**
 * Builds an element: `h("button.quiet", { type: "button", on: { click } }, "Send")`.
 * `on` contains listeners and `set` contains properties. Other members are attributes, left out if false or null.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T | `${T}.${string}`} name
 * @param {Attributes | null} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = /** @type {HTMLElementTagNameMap[T]} */ (document.createElement(tag));
  if (classes.length > 0) element.className = classes.join(" ");
  apply(element, attributes ?? {});
  append(element, children);
  return element;
}

/**
 * Builds an SVG element.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  apply(element, attributes ?? {});
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Attributes} attributes
 */
function apply(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "set") Object.assign(element, value);
    else if (name === "href") {
      if (isSafeAddress(String(value))) element.setAttribute("href", String(value));
    } else element.setAttribute(name, value === true ? "" : visible(String(value)));
  }
}

/**
 * @param {Node} parent
 * @param {Child[]} children
 */
export function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else appendText(parent, String(child));
  }
}

/**
 * Appends text. An invisible character becomes an element with its name.
 * @param {Node} parent
 * @param {string} text
 */
function appendText(parent, text) {
  if (!hasUnseen(text)) {
    parent.appendChild(document.createTextNode(text));
    return;
  }
  for (const { text: piece, unseen } of unseenPieces(text)) {
    const node = document.createTextNode(piece);
    parent.appendChild(unseen ? h("span.unseen", null, node) : node);
  }
}

/**
 * Replaces the content of an element.
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * Returns whether a click on this address runs no code on this page.
 * @param {string} address
 */
export function isSafeAddress(address) {
  return SAFE_ADDRESS.test(address) && !hasUnseen(address);
}

/**
 * Builds a link to another site, with its text and address. Becomes plain text if a click is not safe.
 * @param {string} address
 * @param {Child} [label]
 */
export function link(address, label) {
  if (!/^(?:https?|mailto):/i.test(address) || !isSafeAddress(address)) return h("span.address", null, label ?? address);
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow", title: address }, label ?? address);
}

let ids = 0;
/** Returns an id for an element that another element refers to. */
export const newId = () => `e${++ids}`;
