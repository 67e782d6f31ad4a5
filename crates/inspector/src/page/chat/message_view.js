// @ts-check
// A message: its texts and parts in order, and its sources.

import { h, link, fill } from "../base/dom.js";
import { ago } from "../base/time.js";
import { countCharacters, isText } from "../log/conversation.js";
import { markButton, numbered } from "./citation_marks.js";
import { partView } from "./part_view.js";
import { TextView } from "./text_view.js";

/** @typedef {import("../log/conversation.js").Cited} Cited */

const CITED = "cited";
let cards = 0;

/** @param {string} role */
function author(role) {
  return role === "user" ? "You" : role.startsWith("agent/") ? role.slice(6) : "Agent";
}

export class MessageView {
  /** @param {import("../log/conversation.js").Item} item */
  constructor(item) {
    this.body = h("div.message-body");
    this.sources = h("div");
    this.time = h("time.muted");
    const isUser = item.data.role === "user";
    this.element = h("article.message", { "data-role": isUser ? "user" : "agent", "aria-label": `Message of ${author(item.data.role)}` }, h("header", null, h("strong", null, author(item.data.role)), this.time), this.body, this.sources);
    /** @type {(TextView | HTMLElement)[]} */
    this.views = [];
    /** @type {import("./citation_marks.js").Numbered[]} */
    this.citations = [];
    this.update(item);
  }

  /** @param {import("../log/conversation.js").Item} item */
  update(item) {
    const { segments, citations, length, done } = item.data;
    const hasNewSources = citations.length !== this.citations.length;
    // A citation of later text waits for the text. After the end of the message it waits no longer.
    if (hasNewSources || done) this.citations = numbered(done ? citations.map((/** @type {Cited} */ cited) => within(cited, length)) : citations);
    if (hasNewSources) this.drawSources();
    let offset = 0;
    segments.forEach((/** @type {import("../log/conversation.js").Segment} */ segment, /** @type {number} */ place) => {
      const before = offset;
      if (segment.kind === "text") {
        let view = this.views[place];
        if (!(view instanceof TextView)) {
          view = new TextView((at, button) => this.openCard(at, button));
          this.views[place] = view;
          this.body.append(view.element);
        }
        view.update(segment.text, this.citations, offset);
        offset += countCharacters(segment.text);
        return;
      }
      if (isText(segment.part)) offset += countCharacters(segment.part.content);
      if (!this.views[place]) {
        const view = h("div.part", null, partView(segment.part), h("p.marks"));
        this.views[place] = view;
        this.body.append(view);
      }
      this.markPart(place, before, offset);
    });
    this.element.toggleAttribute("data-streams", !done && item.data.role !== "user");
    this.time.dateTime = item.at;
    fill(this.time, ago(item.at));
  }

  /**
   * Shows the sources of a part that is not text below the part.
   * @param {number} place
   * @param {number} before the number of characters of the message before the part
   * @param {number} after
   */
  markPart(place, before, after) {
    const marks = /** @type {HTMLElement} */ (/** @type {HTMLElement} */ (this.views[place]).lastElementChild);
    const isHere = (/** @type {Cited} */ { part, end }) => part === place || (end > before && end <= after);
    const here = this.citations.flatMap((numbered, at) => (isHere(numbered.cited) ? [{ numbered, at }] : []));
    if (here.length !== marks.childElementCount) fill(marks, here.map(({ numbered, at }) => markButton(numbered, (button) => this.openCard(at, button))));
  }

  drawSources() {
    /** @type {Map<number, import("./citation_marks.js").Numbered>} */
    const sources = new Map();
    for (const source of this.citations) if (!sources.has(source.number)) sources.set(source.number, source);
    const rows = [...sources.values()].map(({ number, cited }) =>
      h("li", { value: number }, cited.url ? link(cited.url, cited.title ?? cited.url) : cited.title ?? "Source", h("span.muted", null, ` ${[hostOf(cited.url), cited.description].filter(Boolean).join(" · ")}`)),
    );
    fill(this.sources, rows.length > 0 && h("section.sources", { "aria-label": "Sources" }, h("h4", null, "Sources"), h("ol", null, rows)));
  }

  /** @param {number} place */
  passage(place) {
    for (const view of this.views) {
      const passage = view instanceof TextView ? view.passages.get(place) : undefined;
      if (!passage) continue;
      const range = document.createRange();
      range.setStart(passage.start, 0);
      range.setEnd(passage.end, passage.end.length);
      return range;
    }
    return undefined;
  }

  /**
   * @param {number} place
   * @param {HTMLElement} button
   */
  openCard(place, button) {
    const { number, cited } = this.citations[place];
    const range = this.passage(place);
    const id = `card-${++cards}`;
    const card = h("div.card.citation", { id, popover: "auto", role: "dialog", "aria-label": `Source ${number}` },
      h("h4", null, `${number}. `, cited.title ?? "Source"),
      cited.description && h("p", null, cited.description),
      range && h("blockquote", null, range.toString().trim().replace(/\s+/g, " ")),
      cited.url && h("p", null, link(cited.url)),
    );
    button.after(card);
    highlight(range);
    card.addEventListener("toggle", (event) => {
      if (/** @type {ToggleEvent} */ (event).newState === "open") return;
      highlight(undefined);
      card.remove();
    });
    card.showPopover();
    placeBelow(card, button);
  }
}

/** Limits the passage of a citation to a message of this length. @param {Cited} cited @param {number} length @returns {Cited} */
const within = (cited, length) => (cited.end <= length ? cited : { ...cited, start: Math.min(cited.start, length), end: length });

/** Returns the host of a link, because its text may not show it. @param {string | undefined} address */
const hostOf = (address) => (address && URL.canParse(address) ? new URL(address).host : "");

/** Places a card below its button, inside the window. @param {HTMLElement} card @param {HTMLElement} button */
function placeBelow(card, button) {
  const at = button.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - card.offsetWidth - 8));
  const below = at.bottom + 6;
  card.style.left = `${left}px`;
  card.style.top = `${below + card.offsetHeight > innerHeight ? Math.max(8, at.top - card.offsetHeight - 6) : below}px`;
}

/** Highlights the quoted passage without changing the text. @param {Range | undefined} range */
function highlight(range) {
  if (!("highlights" in CSS)) return;
  if (range) CSS.highlights.set(CITED, new Highlight(range));
  else CSS.highlights.delete(CITED);
}
