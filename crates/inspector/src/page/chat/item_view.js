// @ts-check
// Renders each kind of conversation item as elements.

import { h, fill } from "../base/dom.js";
import { duration, milliseconds } from "../base/time.js";
import { labelled, textBlock, pretty } from "./json_view.js";
import { MessageView } from "./message_view.js";
import { QuestionView } from "./question.js";
import { step, toolView } from "./tool_view.js";

/** @typedef {import("../log/conversation.js").Item} Item */
/** @typedef {{ element: HTMLElement, update(item: Item): void }} View */

/** A view that is built again on every change. It stays open if it was open. */
class RemadeView {
  /**
   * @param {Item} item
   * @param {(item: Item) => HTMLElement} make
   */
  constructor(item, make) {
    this.make = make;
    this.element = h("div.item", { "data-kind": item.kind });
    this.update(item);
  }
  /** @param {Item} item */
  update(item) {
    const before = this.element.querySelector("details");
    const after = this.make(item);
    if (before && after instanceof HTMLDetailsElement) after.open = before.open;
    this.element.replaceChildren(after);
  }
}

/** The view of a thought. Thoughts grow in small pieces, so only the text changes. */
class ThoughtView {
  /** @param {Item} item */
  constructor(item) {
    this.text = h("p.thought");
    this.label = h("span.step-label");
    this.details = h("details.step", { "data-state": "quiet" }, h("summary", null, this.label), h("div.step-body", null, this.text));
    this.details.addEventListener("toggle", () => this.show());
    this.element = h("div.item", { "data-kind": "thought" }, this.details);
    this.item = item;
    this.update(item);
  }
  /** @param {Item} item */
  update(item) {
    this.item = item;
    const took = milliseconds(item.until ?? item.data.last) - milliseconds(item.at);
    fill(this.label, took >= 1000 ? `Thought for ${duration(took)}` : "Thought", h("span.muted", null, ` ${firstLine(item.data.text)}`));
    this.show();
  }
  show() {
    if (this.details.open) fill(this.text, this.item.data.text);
  }
}

/** @param {string} text */
const firstLine = (text) => text.slice(0, 120).split("\n")[0];

/** @param {Item} item */
function stepView(item) {
  const { tool_name, tool_input, tool_output, message } = item.data;
  return step("done", tool_name ?? "Step", message ? firstLine(message) : firstLine(tool_input == null ? "" : JSON.stringify(tool_input)), () => [
    message ? h("p.thought", null, message) : null,
    labelled("Input", tool_input),
    labelled("Output", tool_output),
  ]);
}

const PLAN_STATES = /** @type {Record<string, string>} */ ({ pending: "to do", in_progress: "doing", completed: "done" });

/** @param {Item} item */
function planView(item) {
  const { entries = [], markdown, path } = item.data;
  if (markdown !== undefined) return h("section.plan", { "aria-label": "Plan" }, h("h4", null, "Plan ", path && h("span.muted", null, path)), textBlock(markdown, "Plan"));
  const done = entries.filter((/** @type {any} */ entry) => entry.status === "completed").length;
  const rows = entries.map((/** @type {any} */ entry) => h("li", { "data-state": entry.status }, h("span.sr-only", null, `${PLAN_STATES[entry.status] ?? entry.status}: `), entry.content));
  return h("section.plan", { "aria-label": "Plan" }, h("h4", null, "Plan ", h("span.muted", null, `${done} of ${entries.length}`)), h("ul", null, rows));
}

/** @param {Item} item */
function suggestionsView(item) {
  const text = (/** @type {any} */ suggestion) => (suggestion.prompt ?? []).map((/** @type {any} */ block) => block.text ?? block.name ?? "").join(" ");
  return h("section.plan", { "aria-label": "Suggested prompts" }, h("h4", null, "Suggested prompts"), h("ul", null, item.data.suggestions.map((/** @type {any} */ it) => h("li", null, text(it)))));
}

/** @param {Item} item */
function endView(item) {
  const { status, error, reason } = item.data.outcome ?? {};
  if (status === "cancelled") return h("p.note", null, reason ? `Stopped: ${reason.replaceAll("_", " ")}` : "Stopped");
  if (!error) return h("p.note", null, status === "timed_out" ? "No answer in time" : `Ended: ${status}`);
  const hint = error.data?.hint;
  return h("div.failure", { role: "note" }, h("strong", null, "The run failed"), h("p", null, error.message), hint && h("p", null, hint), h("p.muted", null, "Code ", h("code", null, error.code), error.transient && " · the same request can succeed later"));
}

/** @param {Item} item */
function outputView(item) {
  const { value, isInput } = item.data;
  const message = value && typeof value === "object" && Object.keys(value).length === 1 && typeof value.message === "string" ? value.message : undefined;
  const label = isInput ? "Input" : "Output";
  const body = message === undefined ? textBlock(pretty(value), label) : h("div.text", null, h("p.plain", null, message));
  return h("article.message", { "data-role": isInput ? "user" : "agent", "aria-label": label }, h("header", null, h("strong", null, isInput ? "You" : "Agent")), h("div.message-body", null, body));
}

/** @param {Item} item */
function noteView(item) {
  const { text, thread } = item.data;
  return h("p.note", null, text, thread && [" ", h("a", { href: `#/threads/${encodeURIComponent(thread)}` }, "Open it")]);
}

/** @type {Record<string, (item: Item) => HTMLElement>} */
const REMADE = { step: stepView, tool: toolView, plan: planView, suggestions: suggestionsView, end: endView, output: outputView, note: noteView };

/**
 * @param {Item} item
 * @returns {View}
 */
export function itemView(item) {
  if (item.kind === "message") return new MessageView(item);
  if (item.kind === "thought") return new ThoughtView(item);
  if (item.kind === "question") return new QuestionView(item.data.interrupt);
  return new RemadeView(item, REMADE[item.kind]);
}
