// @ts-check
// Puts the places of citations into Markdown before it is drawn, and finds them again in what was drawn.
//
// A place travels as ⸨x⸩, where x is a character of a private range: punctuation around it, so that
// it does not change what is bold. Characters of that range that an agent wrote are named first.

import { h } from "../base/dom.js";

/** @typedef {import("../log/conversation.js").Cited} Cited */
/** @typedef {{ number: number, cited: Cited }} Numbered */
/** From the beginning of one text to the end of another. @typedef {{ start: Text, end: Text }} Passage */

const START = 0xe100;
const END = 0xe500;
/** The most citations of one message that have marks in its text. */
export const MAX_MARKS = 0x400;
const PRIVATE = /[\ue100-\ue8ff]/g;
const MARK = /⸨([\ue100-\ue8ff])⸩/g;
/** What begins a line of Markdown or a word in it, before which no mark may be. */
const OPENING = /[\s#>*_`~|+\-\d.)([]/;

/**
 * Citations with numbers: one source has one number.
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
 * @param {Cited[]} citations positions count characters of the whole message
 * @param {number} offset where this text begins in the message
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
    // The end of one text is the beginning of the next: the mark belongs to the one that it follows.
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
 * Takes the marks out of what was drawn: a button for each end, a range for each passage.
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
 * The number of a source, which opens its card.
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
