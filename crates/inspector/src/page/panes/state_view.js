// @ts-check
// A thread's state and metadata at an event. Fetched when the reader opens it.

import { h, fill } from "../base/dom.js";
import { get, segment } from "../base/api.js";
import { problemView } from "../base/problem_view.js";
import { shortId } from "../base/time.js";
import { labelled } from "../chat/json_view.js";

/** The slider passes many events, so only the one where it rests is fetched. */
const READ_PAUSE_MS = 150;

export class StateView {
  /** @param {string} id the id of the thread */
  constructor(id) {
    this.id = id;
    this.number = 0;
    this.read = 0;
    this.timer = 0;
    this.body = h("div", { "aria-live": "polite" });
    this.element = h("details.state-as-of", { on: { toggle: () => this.show(this.number) } }, h("summary", null, "State"), this.body);
  }

  /** @param {number} number the event; its state is fetched after a pause */
  show(number) {
    this.number = number;
    clearTimeout(this.timer);
    if (/** @type {HTMLDetailsElement} */ (this.element).open && number > 0 && number !== this.read) this.timer = setTimeout(() => this.load(number), READ_PAUSE_MS);
  }

  /** @param {number} number */
  async load(number) {
    /** @type {any} */
    let shown;
    try {
      const { values, metadata, run_id } = await get(`threads/${segment(this.id)}/state?at=${number}`);
      shown = [
        values === undefined && h("p.muted", null, "No agent has set a state."),
        run_id && h("p.muted", null, `Set by the run ${shortId(run_id)}, which is not complete.`),
        labelled("Values", values),
        labelled("Metadata", metadata),
      ];
    } catch (error) {
      shown = problemView(error);
    }
    if (this.number !== number) return;
    this.read = number;
    fill(this.body, shown);
  }
}
