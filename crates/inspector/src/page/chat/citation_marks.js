// @ts-check
// Inserts the positions of citations into Markdown before it is rendered, and finds them in the result.
//
// A position becomes ⸨x⸩, where x is a character of a private range. It has punctuation around it, so that
// it does not change emphasis. Characters of that range from an agent are replaced with their names first.

import { h } from "../base/dom.js";

/** @typedef {import("../log/conversation.js").Cited} Cited */
/** @typedef {{ number: number, cited: Cited }} Numbered */
/** A range from the beginning of one text to the end of another. @typedef {{ start: Text, end: Text }} Passage */

const START = 0xe100;
const END = 0xe500;
/** The maximum number of citations of one message with marks in its text. */
export const MAX_MARKS = 0x400;
const PRIVATE = /[\ue100-\ue8ff]/g;
const MARK = /⸨([\ue100-\ue8ff])⸩/g;
/** Characters that begin a line or a word of Markdown. No mark may be before them. */
const OPENING = /[\s#>*_`~|+\-\d.)([]/;

/**
 * Numbers citations. Citations of one source have the same number.
 * @param {Cited[]} citations
 * @returns {Numbered[]}
 */
export function numbered(citations) {
  /** @type {Map<string, number>} */
  const numbers = new Map();
  return citations.map((cited, place) => {
    const source = cited.url ?? cited.title ?? `#${place}`;
    const number = numbers.get(source) ?? numbers.size + 1;
    numbers.set(source, number);
    return { number, cited };
  });
}

/**
 * @param {string} text
 * @param {Cited[]} citations positions in characters of the whole message
 * @param {number} offset the position of this text in the message
 */
export function withMarks(text, citations, offset) {
  const named = (/** @type {string} */ piece) => piece.replace(PRIVATE, (it) => `⟨U+${it.charCodeAt(0).toString(16).toUpperCase()}⟩`);
  if (citations.length === 0) return named(text);
  const letters = [...text];
  /** @type {Map<number, string>} */
  const marks = new Map();
  const add = (/** @type {number} */ at, /** @type {string} */ mark) => marks.set(at, (marks.get(at) ?? "") + mark);
  citations.slice(0, MAX_MARKS).forEach((cited, place) => {
    let start = cited.start - offset;
    const end = cited.end - offset;
    // The end of one text is also the start of the next. The mark belongs to the text before it.
    if (cited.end < 0 || end > letters.length || (end <= 0 && offset > 0)) return;
    if (start >= 0 && start < end) {
      while (start < end && OPENING.test(letters[start])) start++;
      add(start, `⸨${String.fromCharCode(START + place)}⸩`);
      add(end, `⸨${String.fromCharCode(END + place)}⸩`);
      return;
    }
    let at = end;
    if (at === 0 || letters[at - 1] === "\n") while (at < letters.length && OPENING.test(letters[at])) at++;
    add(at, `⸨${String.fromCharCode(END + place)}⸩`);
  });
  if (marks.size === 0) return named(text);
  let marked = "";
  let from = 0;
  for (const at of [...marks.keys()].sort((one, other) => one - other)) {
    marked += named(letters.slice(from, at).join("")) + marks.get(at);
    from = at;
  }
  return marked + named(letters.slice(from).join(""));
}

/**
 * Removes the marks from the rendered HTML: adds a button at each end, and returns a range for each passage.
 * @param {DocumentFragment} root
 * @param {Numbered[]} citations
 * @param {(place: number, button: HTMLElement) => void} onOpen
 * @returns {Map<number, Passage>} the passages, by the place of their citation
 */
export function takeMarks(root, citations, onOpen) {
  /** @type {Map<number, Passage>} */
  const passages = new Map();
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  /** @type {Text[]} */
  const texts = [];
  while (walker.nextNode()) {
    const text = /** @type {Text} */ (walker.currentNode);
    if (text.data.includes("⸨")) texts.push(text);
  }
  for (const text of texts) takeFrom(text, citations, passages, onOpen);
  for (const anchor of root.querySelectorAll("a[href]")) {
    const address = decode(anchor.getAttribute("href") ?? "");
    if (/[\ue100-\ue8ff]/.test(address)) anchor.setAttribute("href", address.replace(MARK, ""));
  }
  return passages;
}

/**
 * Builds the number of a source, which opens its card.
 * @param {Numbered} numbered
 * @param {(button: HTMLElement) => void} onOpen
 */
export function markButton({ number, cited }, onOpen) {
  const mark = h("button.mark", { type: "button", "aria-label": `Source ${number}: ${cited.title ?? cited.url ?? ""}` }, String(number));
  mark.addEventListener("click", () => onOpen(mark));
  return mark;
}

/** @param {string} address */
function decode(address) {
  return address.replace(/%E2%B8%A8%EE%8[4-9A-F]%[89AB][0-9A-F]%E2%B8%A9|%E2%B8%A8%EE%9[0-9A-F]%[89AB][0-9A-F]%E2%B8%A9|%E2%B8%A8%EE%A[0-3]%[89AB][0-9A-F]%E2%B8%A9/gi, decodeURIComponent);
}

/**
 * @param {Text} text
 * @param {Numbered[]} citations
 * @param {Map<number, Passage>} passages
 * @param {(place: number, button: HTMLElement) => void} onOpen
 */
function takeFrom(text, citations, passages, onOpen) {
  let rest = text;
  for (;;) {
    MARK.lastIndex = 0;
    const match = MARK.exec(rest.data);
    if (!match) return;
    const after = rest.splitText(match.index);
    after.deleteData(0, match[0].length);
    const code = match[1].charCodeAt(0);
    const place = code >= END ? code - END : code - START;
    const known = citations[place];
    if (known && code < END) {
      passages.set(place, { start: after, end: after });
    } else if (known) {
      const passage = passages.get(place);
      if (passage) passage.end = rest;
      after.before(markButton(known, (mark) => onOpen(place, mark)));
    }
    rest = after;
  }
}
