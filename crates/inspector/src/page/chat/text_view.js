// @ts-check
// A text of a message: plain at first, Markdown after the server has rendered it.

import { h, fill } from "../base/dom.js";
import { draw } from "../base/draw.js";
import { takeMarks, withMarks } from "./citation_marks.js";
import { visible } from "../base/visible.js";
import { copyButton } from "./copy.js";

/** The minimum time between two renderings while the text grows. Only one rendering runs at a time. */
const MIN_PAUSE_MS = 100;

export class TextView {
  /** @param {(place: number, button: HTMLElement) => void} onCitation */
  constructor(onCitation) {
    this.element = h("div.text");
    this.onCitation = onCitation;
    this.wanted = "";
    this.drawnText = "";
    /** @type {import("./citation_marks.js").Numbered[]} */
    this.citations = [];
    /** @type {Map<number, import("./citation_marks.js").Passage>} */
    this.passages = new Map();
    this.isBusy = false;
    this.isPlain = true;
  }

  /**
   * @param {string} text
   * @param {import("./citation_marks.js").Numbered[]} citations
   * @param {number} offset the position of the text in its message, in characters
   */
  update(text, citations, offset) {
    const marked = withMarks(text, citations.map((it) => it.cited), offset);
    this.citations = citations;
    if (marked === this.wanted) return;
    this.wanted = marked;
    if (this.isPlain) fill(this.element, h("p.plain", null, text));
    if (!this.isBusy) this.work();
  }

  async work() {
    this.isBusy = true;
    try {
      while (this.wanted !== this.drawnText) {
        const text = this.wanted;
        const citations = this.citations;
        const pause = new Promise((done) => setTimeout(done, MIN_PAUSE_MS));
        const drawn = await draw({ markdown: text });
        this.drawnText = text;
        if (drawn) {
          this.passages = takeMarks(drawn, citations, this.onCitation);
          decorate(drawn);
          this.isPlain = false;
          this.element.replaceChildren(drawn);
        } else this.isPlain = true;
        if (this.wanted !== text) await pause;
      }
    } finally {
      this.isBusy = false;
    }
  }
}

/**
 * Adds a copy button to blocks of code, makes tables scroll, and shows the address of links.
 * @param {ParentNode} root
 */
export function decorate(root) {
  for (const pre of root.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    pre.tabIndex = 0;
    const language = code?.dataset.language;
    const box = h("div.code", null, h("div.code-head", null, h("span", null, language ?? "code"), copyButton(() => pre.textContent ?? "", "Copy this code")));
    pre.replaceWith(box);
    box.append(pre);
  }
  // Shows the target of a link, because its text may not show it.
  for (const anchor of root.querySelectorAll("a[href]")) anchor.setAttribute("title", visible(anchor.getAttribute("href") ?? ""));
  for (const table of root.querySelectorAll("table")) {
    const box = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Table" });
    table.replaceWith(box);
    box.append(table);
  }
}
