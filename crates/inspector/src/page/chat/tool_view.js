// @ts-check
// A tool call: its input, its output, its changes, and its duration.

import { h, fill } from "../base/dom.js";
import { draw } from "../base/draw.js";
import { withoutEscapes } from "../base/visible.js";
import { duration, milliseconds } from "../base/time.js";
import { labelled, textBlock } from "./json_view.js";
import { partView } from "./part_view.js";

const STATES = /** @type {Record<string, string>} */ ({ completed: "done", failed: "failed", unfinished: "not finished" });

/**
 * Builds a collapsible step with a mark for its state.
 * @param {string} state `busy`, `done`, `failed` or `quiet`
 * @param {string} label
 * @param {string} aside
 * @param {() => (Node | null)[]} body built when the step is first opened
 */
export function step(state, label, aside, body) {
  const inside = h("div.step-body");
  const details = h("details.step", { "data-state": state }, h("summary", null, h("span.step-label", null, label), h("span.muted", null, aside)), inside);
  details.addEventListener("toggle", () => {
    if (details.open && !inside.hasChildNodes()) fill(inside, body());
  });
  return details;
}

/** @param {import("../log/conversation.js").Item} item */
export function toolView(item) {
  const { data } = item;
  const state = !data.status ? "busy" : data.status === "completed" ? "done" : "failed";
  const took = item.until ? duration(milliseconds(item.until) - milliseconds(item.at)) : "running";
  const aside = [data.tool !== data.title && data.tool, STATES[data.status] !== "done" && STATES[data.status], took].filter(Boolean).join(" · ");
  const details = step(state, data.title || data.tool || "Tool call", aside, () => toolBody(data));
  // A changed file is shown without a click.
  if (data.content.some(isDifference)) details.open = true;
  return details;
}

/** @param {any} entry */
const isDifference = (entry) => entry.form === "block" && entry.block?.type === "diff";

/** @param {any} data */
function toolBody(data) {
  const isCommand = data.action === "execute";
  return [
    isCommand ? commandLine(data.input) : labelled("Input", data.input),
    ...contentViews(data.content, isCommand),
    labelled("Output", data.output),
  ];
}

/** @param {any} input */
function commandLine(input) {
  if (!input || typeof input.command !== "string") return labelled("Input", input);
  const words = [input.command, ...(Array.isArray(input.args) ? input.args : [])].join(" ");
  return textBlock(`$ ${words}`, "Command", "terminal");
}

/**
 * Renders the content of a tool call.
 * @param {any[]} content
 * @param {boolean} isTerminal
 */
export function contentViews(content, isTerminal) {
  return content.map((entry) => {
    if (entry.form === "part") return contentPart(entry.part, isTerminal);
    const block = entry.block;
    if (block?.type === "diff") return differenceView(String(block.path ?? ""), String(block.oldText ?? ""), String(block.newText ?? ""));
    if (block?.type === "terminal") return h("p.muted", null, `Terminal ${block.terminalId ?? ""}`);
    if (block?.type === "content") return blockView(block.content ?? {}, isTerminal);
    return textBlock(JSON.stringify(block, null, 2), "Content");
  });
}

/**
 * @param {any} part
 * @param {boolean} isTerminal
 */
function contentPart(part, isTerminal) {
  const isText = part.content != null && part.content_encoding !== "base64" && /^text\/plain/.test(part.content_type);
  return isText && !part.name ? textBlock(withoutEscapes(part.content), "Result", isTerminal ? "terminal" : "block") : partView(part);
}

/**
 * Renders a content block of the Agent Client Protocol.
 * @param {any} block
 * @param {boolean} isTerminal
 */
function blockView(block, isTerminal) {
  if (block.type === "text") return textBlock(withoutEscapes(String(block.text)), "Result", isTerminal ? "terminal" : "block");
  if (block.type === "resource_link") return partView({ content_type: block.mimeType ?? "", content_url: block.uri, name: block.title ?? block.name });
  if (block.type === "resource") {
    const { uri, mimeType, text, blob } = block.resource ?? {};
    return partView({ content_type: mimeType ?? "text/plain", name: uri, content: text ?? blob, content_encoding: text == null ? "base64" : "plain" });
  }
  if (typeof block.data === "string") return partView({ content_type: block.mimeType ?? "", content: block.data, content_encoding: "base64" });
  return textBlock(JSON.stringify(block, null, 2), "Content");
}

/**
 * @param {string} path
 * @param {string} before
 * @param {string} after
 */
export function differenceView(path, before, after) {
  const body = h("div.scroll", { tabindex: 0, role: "region", "aria-label": `Changes of ${path}` });
  const box = h("section.difference-box", { "data-hidden": true }, h("header", null, h("code", null, path), before === "" && h("span.muted", null, "new file")), body);
  draw({ before, after }).then((drawn) => {
    // A question about a change must show all of it.
    if (drawn && !drawn.querySelector(".cut")) body.replaceChildren(drawn);
    else fill(body, plainDifference(before, after));
    box.removeAttribute("data-hidden");
  });
  return box;
}

/**
 * Shows every old line, then every new line, if the server cannot render the whole difference.
 * @param {string} before
 * @param {string} after
 */
function plainDifference(before, after) {
  const lines = (/** @type {string} */ text, /** @type {string} */ name, /** @type {string} */ mark) =>
    text === "" ? [] : text.replace(/\n$/, "").split("\n").map((line) => h(`tr.${/** @type {"x"} */ (name)}`, null, h("td", null, mark), h("td", null, h("code", null, line))));
  return h("table.difference", null, h("tbody", null, lines(before, "removed", "−"), lines(after, "added", "+")));
}
