// @ts-check
// Shows the difference between two threads, or between two runs. The server renders it.

import { h, fill } from "../base/dom.js";
import { get, segment } from "../base/api.js";
import { shortId } from "../base/time.js";
import { pretty } from "./json_view.js";
import { differenceView } from "./tool_view.js";

/** @typedef {import("../log/thread_log.js").ThreadLog} ThreadLog */

const PAUSE_MS = 200;
const NAMES = ["Left", "Right"];

/** Returns the text of an item to compare: messages and actions, without ids and times. @param {import("../log/conversation.js").Item} item */
function textOf({ kind, data }) {
  if (kind === "message") {
    const parts = data.segments.map((/** @type {any} */ it) => it.text ?? `[${it.part.name ?? it.part.content_type}]\n${it.part.content_encoding === "base64" ? "" : it.part.content ?? it.part.content_url ?? ""}`);
    return `${data.role}:\n${parts.join("\n")}`;
  }
  if (kind === "tool") return `${data.title}: ${data.status ?? "running"}`;
  if (kind === "question") return `${data.interrupt.kind}: ${pretty(data.interrupt.resolution?.answer ?? data.interrupt.resolution?.kind ?? "open")}`;
  if (kind === "output") return `${data.isInput ? "input" : "output"}:\n${pretty(data.value)}`;
  return kind === "end" ? `${data.outcome?.status}: ${data.outcome?.error?.message ?? ""}` : "";
}

export class DifferenceView {
  /**
   * @param {ThreadLog[]} logs the left and the right thread
   * @param {AbortSignal} signal
   * @param {() => void} onClose
   */
  constructor(logs, signal, onClose) {
    this.logs = logs;
    this.timer = 0;
    /** The titles of threads. @type {Map<string, string>} */
    this.titles = new Map();
    /** The options of the choices. */
    this.listed = "";
    /** The shown texts. */
    this.shown = "";
    this.choices = NAMES.map((name) => h("select", { "aria-label": name, on: { change: () => this.show() } }));
    this.body = h("div", { "aria-live": "polite" });
    const close = h("button.quiet", { type: "button", on: { click: onClose } }, "Show the threads");
    this.element = h("section.differences.scrolls", { "aria-label": "Difference" }, h("header", null, h("h2", null, "Difference"), this.choices, close), this.body);
    for (const log of logs) {
      // Until its title is known, a thread is shown with its id.
      get(`threads/${segment(log.id)}`, { signal }).then(({ title }) => (this.titles.set(log.id, title), this.show()), () => undefined);
      log.addEventListener("change", () => {
        this.timer ||= setTimeout(() => this.show(), PAUSE_MS);
      }, { signal });
    }
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    this.show();
  }

  /** Lists the runs of both threads on both sides. */
  list() {
    const sides = this.logs[0].id === this.logs[1].id ? this.logs.slice(1) : this.logs;
    const options = sides.flatMap((log) => [
      [log.id, this.titles.get(log.id) || `Thread ${shortId(log.id)}`],
      ...[...log.conversation.runs].map(([id, run]) => [`${log.id} ${id}`, `  ${run.agent} ${shortId(id)}`]),
    ]);
    const key = JSON.stringify(options);
    if (key === this.listed) return;
    this.listed = key;
    this.choices.forEach((select, place) => {
      // For a single thread, its last two runs.
      const usual = sides.length === 1 ? options.slice(1).at(place - 2)?.[0] : undefined;
      const chosen = select.value || usual || this.logs[place].id;
      fill(select, options.map(([value, label]) => h("option", { value }, label)));
      select.value = chosen;
    });
  }

  show() {
    this.timer = 0;
    this.list();
    const [before, after] = this.choices.map((select) => this.text(select.value));
    const texts = JSON.stringify([before, after]);
    if (texts === this.shown) return;
    this.shown = texts;
    fill(this.body, before === after ? h("p.muted.empty", null, "Both say the same.") : differenceView("what was said and done", before, after));
  }

  /** @param {string} choice a thread, or a thread and a run */
  text(choice) {
    const [thread, run] = choice.split(" ");
    const items = this.logs.find((log) => log.id === thread)?.conversation.items ?? [];
    const texts = items.filter((item) => !run || item.runId === run).map(textOf);
    return texts.filter(Boolean).map((text) => `${text.trimEnd()}\n`).join("\n");
  }
}
