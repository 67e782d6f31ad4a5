// @ts-check
// The list of the agent's commands. Shown while the reader writes `/` at the beginning of a message.

import { h, fill, newId } from "../base/dom.js";
import { announce } from "../base/announce.js";
import { get, segment } from "../base/api.js";
import { plural } from "../base/time.js";

const BEGINNING = /^\/(\S*)$/;

export class CommandList {
  /**
   * @param {HTMLTextAreaElement} text
   * @param {() => string} agent the name of the agent
   */
  constructor(text, agent) {
    this.text = text;
    this.agent = agent;
    /** @type {{ name: string, description: string }[]} */
    this.commands = [];
    /** @type {{ name: string, description: string }[]} */
    this.shown = [];
    this.chosen = 0;
    this.element = h("ul.commands.card", { id: newId(), role: "listbox", "aria-label": "Commands of the agent", hidden: true });
    text.setAttribute("aria-autocomplete", "list");
    text.setAttribute("aria-controls", this.element.id);
    text.addEventListener("input", () => this.refresh());
    text.addEventListener("blur", () => this.hide());
  }

  async refresh() {
    const typed = BEGINNING.exec(this.text.value)?.[1];
    if (typed === undefined) {
      this.hide();
      return;
    }
    // A hosted agent reports its commands when a session begins, so they are fetched each time.
    if (typed === "") this.commands = (await get(`agents/${segment(this.agent())}`).catch(() => ({}))).commands ?? [];
    const now = BEGINNING.exec(this.text.value)?.[1];
    if (now === undefined) return;
    this.shown = this.commands.filter((it) => it.name.toLowerCase().startsWith(now.toLowerCase()));
    this.chosen = 0;
    this.show();
  }

  show() {
    if (this.shown.length === 0) {
      this.hide();
      return;
    }
    if (this.element.hidden) announce(plural(this.shown.length, "command"));
    this.element.hidden = false;
    fill(this.element, this.shown.map((it, place) => {
      const isChosen = place === this.chosen;
      const choose = (/** @type {Event} */ event) => (event.preventDefault(), this.take(place));
      return h("li", { role: "option", id: `${this.element.id}-${place}`, "aria-selected": String(isChosen), on: { pointerdown: choose } }, h("strong", null, `/${it.name}`), h("span.muted", null, ` ${it.description}`));
    }));
    this.element.children[this.chosen]?.scrollIntoView({ block: "nearest" });
    this.text.setAttribute("aria-activedescendant", `${this.element.id}-${this.chosen}`);
  }

  hide() {
    this.element.hidden = true;
    this.text.removeAttribute("aria-activedescendant");
  }

  /** @param {number} place */
  take(place) {
    this.text.value = `/${this.shown[place].name} `;
    this.hide();
    this.text.focus();
  }

  /** Handles a key. Returns whether it was for the list. @param {KeyboardEvent} event */
  takesKey(event) {
    if (this.element.hidden || event.isComposing || event.shiftKey) return false;
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by !== 0) {
      this.chosen = (this.chosen + by + this.shown.length) % this.shown.length;
      this.show();
    } else if (event.key === "Enter" || event.key === "Tab") this.take(this.chosen);
    else if (event.key === "Escape") this.hide();
    else return false;
    event.preventDefault();
    return true;
  }
}
