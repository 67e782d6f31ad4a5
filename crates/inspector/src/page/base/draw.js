// @ts-check
// Requests safe HTML of Markdown and differences from the server: many texts in one request.
// Caches the results.

import { post } from "./api.js";
import { drawnHtml } from "./trusted.js";

/** @typedef {{ markdown: string } | { before: string, after: string }} Drawing */

const MAX_ITEMS = 100;
/** Below the server's 256 KiB, in UTF-16 units of at most three bytes each. */
const MAX_CHARACTERS = 80 * 1024;
const GATHER_MS = 15;
const MAX_KEPT = 200;
const MAX_KEPT_CHARACTERS = 4 * 1024 * 1024;

/** @typedef {{ item: Drawing, key: string, done: ((html: string | undefined) => void)[] }} Wanted */

/** @type {Map<string, Wanted>} */
const queue = new Map();
/** @type {Map<string, string>} */
const kept = new Map();
let keptCharacters = 0;
let timer = 0;

/** @param {Drawing} item */
const length = (item) => Object.values(item).reduce((sum, text) => sum + text.length, 0);

/**
 * Returns the server's rendering; `undefined` if the server cannot render the text and it must be shown as it is.
 * @param {Drawing} item
 * @returns {Promise<DocumentFragment | undefined>}
 */
export async function draw(item) {
  const key = JSON.stringify(item);
  const known = kept.get(key);
  if (known !== undefined) return drawnHtml(known);
  if (length(item) > MAX_CHARACTERS) return undefined;
  const html = await new Promise((/** @type {(html: string | undefined) => void} */ done) => {
    const wanted = queue.get(key);
    if (wanted) wanted.done.push(done);
    else queue.set(key, { item, key, done: [done] });
    timer ||= setTimeout(flush, GATHER_MS);
  });
  return html === undefined ? undefined : drawnHtml(html);
}

function flush() {
  timer = 0;
  /** @type {Wanted[]} */
  const batch = [];
  let characters = 0;
  for (const [key, wanted] of queue) {
    characters += length(wanted.item);
    if (batch.length === MAX_ITEMS || (batch.length > 0 && characters > MAX_CHARACTERS)) break;
    batch.push(wanted);
    queue.delete(key);
  }
  if (queue.size > 0) timer = setTimeout(flush, GATHER_MS);
  post("draw", { items: batch.map((wanted) => wanted.item) }).then(
    (response) => batch.forEach((wanted, place) => finish(wanted, response.items[place]?.html)),
    () => batch.forEach((wanted) => finish(wanted, undefined)),
  );
}

/**
 * @param {Wanted} wanted
 * @param {string | undefined} html
 */
function finish(wanted, html) {
  if (html !== undefined) keep(wanted.key, html);
  for (const done of wanted.done) done(html);
}

/**
 * @param {string} key
 * @param {string} html
 */
function keep(key, html) {
  kept.set(key, html);
  keptCharacters += key.length + html.length;
  for (const [oldest, value] of kept) {
    if (kept.size <= MAX_KEPT && keptCharacters <= MAX_KEPT_CHARACTERS) break;
    kept.delete(oldest);
    keptCharacters -= oldest.length + value.length;
  }
}
