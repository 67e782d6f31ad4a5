// @ts-check
// A long list of rows with the same height. Only the visible rows are in the page.

import { h } from "../base/dom.js";

export const ROW_HEIGHT = 28;
const EXTRA_ROWS = 8;
/** Browsers lose precision in taller elements. Above this height, positions are scaled. */
const MAX_HEIGHT = 8_000_000;

/** @typedef {{ element: HTMLElement, place: number }} RowSlot */

export class VirtualRows {
  /**
   * @param {string} label
   * @param {(element: HTMLElement, place: number) => void} drawRow
   * @param {(place: number) => void} onChoose
   */
  constructor(label, drawRow, onChoose) {
    this.drawRow = drawRow;
    this.onChoose = onChoose;
    this.count = 0;
    this.chosen = -1;
    this.space = h("div.virtual-space");
    this.element = h("div.virtual", { tabindex: 0, role: "listbox", "aria-label": label }, this.space);
    /** @type {Map<number, HTMLElement>} */
    this.slots = new Map();
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.space.addEventListener("click", (event) => {
      const row = /** @type {HTMLElement} */ (event.target).closest("[data-place]");
      if (row) this.choose(Number(/** @type {HTMLElement} */ (row).dataset.place));
    });
    // Keeps the chosen row visible when the list becomes smaller.
    new ResizeObserver(() => this.reveal()).observe(this.element);
  }

  get height() {
    return Math.min(MAX_HEIGHT, this.count * ROW_HEIGHT);
  }

  get firstVisible() {
    const room = this.element.clientHeight;
    const reach = this.height - room;
    if (this.height < MAX_HEIGHT || reach <= 0) return this.element.scrollTop / ROW_HEIGHT;
    return (this.element.scrollTop / reach) * (this.count - room / ROW_HEIGHT);
  }

  get visibleRows() {
    return Math.ceil(this.element.clientHeight / ROW_HEIGHT);
  }

  /** @param {number} count */
  setCount(count) {
    if (count !== this.count) {
      this.count = count;
      this.space.style.height = `${this.height}px`;
      if (this.chosen >= count) this.chosen = -1;
    }
    this.draw(true);
  }

  /** @param {boolean} [again] whether existing rows are drawn again */
  draw(again = false) {
    const top = this.firstVisible;
    const first = Math.max(0, Math.floor(top) - EXTRA_ROWS);
    const last = Math.min(this.count - 1, Math.floor(top) + this.visibleRows + EXTRA_ROWS);
    for (const [place, element] of this.slots) {
      if (place >= first && place <= last) continue;
      element.remove();
      this.slots.delete(place);
    }
    for (let place = first; place <= last; place++) {
      let element = this.slots.get(place);
      const isNew = !element;
      element ??= this.makeSlot(place);
      if (isNew || again) this.drawRow(element, place);
      element.style.top = `${this.element.scrollTop + (place - top) * ROW_HEIGHT}px`;
      element.setAttribute("aria-selected", String(place === this.chosen));
    }
  }

  /** @param {number} place */
  makeSlot(place) {
    const element = h("div.virtual-row", { role: "option", id: `${this.space.id || "row"}-${place}`, "data-place": place, "aria-setsize": this.count, "aria-posinset": place + 1 });
    this.slots.set(place, element);
    this.space.append(element);
    return element;
  }

  /** @param {number} place */
  scrollTo(place) {
    const room = this.element.clientHeight;
    const centre = place - room / ROW_HEIGHT / 2;
    const reach = this.height - room;
    const whole = this.count - room / ROW_HEIGHT;
    this.element.scrollTop = this.height < MAX_HEIGHT ? centre * ROW_HEIGHT : whole > 0 ? (centre / whole) * reach : 0;
    this.draw();
  }

  reveal() {
    const top = this.firstVisible;
    const isVisible = this.chosen >= top && this.chosen <= top + this.visibleRows - 2;
    if (this.chosen < 0 || isVisible) this.draw();
    else this.scrollTo(this.chosen);
  }

  /** @param {number} place */
  choose(place) {
    this.chosen = Math.max(0, Math.min(this.count - 1, place));
    this.reveal();
    this.element.setAttribute("aria-activedescendant", this.slots.get(this.chosen)?.id ?? "");
    this.onChoose(this.chosen);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const page = Math.max(1, this.visibleRows - 2);
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity });
    const by = steps[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.choose(by === Infinity ? this.count - 1 : by === -Infinity ? 0 : this.chosen + by);
  }
}
