// @ts-check
// Characters that a reader cannot see, or that change the direction of their neighbours.

// The same list as in the server's rendering: controls except line feed and tab, invisible and bidirectional marks, tags.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;
/** The maximum length of a file name for download, in characters. */
const MAX_FILE_NAME = 100;

/** @param {string} text */
export const hasUnseen = (text) => text.search(UNSEEN) >= 0;

/** @param {string} letter */
function name(letter) {
  return `U+${(letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/**
 * Replaces invisible characters with their names, for places without elements.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(UNSEEN, (letter) => `⟨${name(letter)}⟩`);
}

/**
 * @param {string} text
 * @returns {{ text: string, unseen: boolean }[]}
 */
export function unseenPieces(text) {
  const pieces = [];
  let from = 0;
  // A carriage return before a line feed is part of a line end.
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), unseen: false });
    from = match.index + match[0].length;
    if (match[0] !== "\r" || text[from] !== "\n") pieces.push({ text: name(match[0]), unseen: true });
  }
  if (from < text.length) pieces.push({ text: text.slice(from), unseen: false });
  return pieces;
}

/**
 * Removes colours and cursor movements from the text of a terminal.
 * @param {string} text
 */
export function withoutEscapes(text) {
  return text.replace(/\u001b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\))/g, "");
}

/**
 * Returns a name that is safe for a file: no folders, no invisible characters, not hidden.
 * @param {string | null | undefined} text
 * @param {string} otherwise
 */
export function fileName(text, otherwise) {
  const last = (text ?? "").replace(UNSEEN, "").split(/[/\\]/).pop() ?? "";
  const plain = last.replace(/[<>:"|?*]/g, "_").replace(/^[.\s]+|[.\s]+$/g, "");
  return [...plain].slice(-MAX_FILE_NAME).join("") || otherwise;
}
