// @ts-check
// The agents: their declared properties, their schemas, and a form to try each.

import { h, fill } from "../base/dom.js";
import { listAgents } from "../base/agents_list.js";
import { problemView } from "../base/problem_view.js";
import { placeOf } from "../base/router.js";
import { get, post, segment } from "../base/api.js";
import { changed } from "../base/feed.js";
import { labelled, pretty, textBlock } from "../chat/json_view.js";
import { schemaForm } from "../chat/schema_form.js";
import { processTable } from "./processes.js";

/** @type {import("../base/router.js").OpenSection} */
export function openAgents(root, signal) {
  const list = h("ul.rows", { "aria-label": "Agents" });
  const content = h("div.content.scrolls");
  const frame = h("div.threads", null, h("nav.list-pane", { "aria-label": "Agents" }, h("header", null, h("h1", null, "Agents")), list), content);
  root.append(frame);
  return {
    async show({ path }) {
      const name = path[1];
      frame.dataset.view = name ? "thread" : "list";
      try {
        const agents = await listAgents(true);
        if (signal.aborted) return;
        fill(list, agents.map((agent) => h("li", null, h("a.row", { href: placeOf(["agents", agent.name]), "data-row": true, "aria-current": agent.name === name ? "page" : null }, h("span.dot", { "data-status": agent.unavailable ? "failed" : "completed" }), h("span.row-title", null, agent.name), h("span.row-details.muted", null, agent.description || agent.title || agent.version)))));
        const agent = agents.find((it) => it.name === name);
        fill(content, agent ? agentCard(agent) : h("p.muted.empty", null, name ? `Agent ‘${name}’ not found.` : "Choose an agent."));
      } catch (error) {
        fill(content, problemView(error));
      }
    },
  };
}

/** @param {any} agent */
function agentCard(agent) {
  const tags = (/** @type {string[]} */ list) => (list ?? []).map((it) => h("span.badge", null, it));
  const facts = [
    ["Version", agent.version],
    ["Also called", agent.title],
    ["Input", agent.input?.kind === "schema" ? "one JSON value" : "messages"],
    ["Reads", tags(agent.input_content_types)],
    ["Writes", tags(agent.output_content_types)],
    ["Asks", tags((agent.interrupts ?? []).map((/** @type {any} */ it) => it.kind))],
    ["Works in a folder", agent.takes_folder ? "yes" : undefined],
  ].filter(([, value]) => value !== undefined && value !== null && value.length !== 0);
  const schemas = [["Input schema", agent.input?.schema], ["Output schema", agent.output_schema], ["State schema", agent.state_schema], ["Configuration schema", agent.config_schema]].filter(([, schema]) => schema);
  return h("article.page", { "aria-label": agent.name },
    h("header.page-head", null, h("a.back.icon-button", { href: "#/agents", "aria-label": "All agents" }, "‹"), h("h2", null, agent.name), h("a.button.primary", { href: placeOf(["new"], { agent: agent.name }) }, "Chat")),
    agent.unavailable && h("p.failure", null, agent.unavailable),
    agent.last_failure && h("p.failure", null, `Failed at ${agent.last_failure.at}: ${agent.last_failure.reason}`),
    h("p", null, agent.description),
    h("dl.facts", null, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
    agent.commands?.length > 0 && h("section", null, h("h3", null, "Commands"), h("dl.facts", null, agent.commands.map((/** @type {any} */ it) => h("div", null, h("dt", null, `/${it.name}`), h("dd", null, it.description))))),
    tryForm(agent),
    processesOf(agent.name),
    schemas.map(([name, schema]) => h("details", null, h("summary", null, name), textBlock(JSON.stringify(schema, null, 2), String(name)))),
    formsView(agent.name),
    (agent.interrupts ?? []).map((/** @type {any} */ it) => h("details", null, h("summary", null, `Question ‘${it.kind}’`), labelled("Asks", it.payload_schema), labelled("Answer", it.answer_schema))),
  );
}

/** Shows the agent's own processes, if the caller may see them. @param {string} name */
function processesOf(name) {
  const place = h("div");
  get("status").then((status) => fill(place, processTable((status.agents.list ?? []).filter((/** @type {any} */ it) => it.agent === name))), () => undefined);
  return place;
}

/** Shows the agent in the form of each protocol. Fetched when the reader opens it. @param {string} name */
function formsView(name) {
  const body = h("div");
  const load = async () => {
    if (body.hasChildNodes()) return;
    try {
      const { items } = await get(`agents/${segment(name)}/forms`);
      fill(body, items.length === 0 ? h("p.muted", null, "No other protocol is served.") : items.map((/** @type {any} */ { title, value }) => labelled(title, value)));
    } catch (error) {
      fill(body, problemView(error));
    }
  };
  return h("details", { on: { toggle: load } }, h("summary", null, "As each protocol shows it"), body);
}

/** Runs the agent once, on a new thread. @param {any} agent */
function tryForm(agent) {
  const isSchema = agent.input?.kind === "schema";
  const form = schemaForm(isSchema ? agent.input.schema ?? {} : { type: "object", properties: { message: { type: "string", title: "Message", maxLength: 20_000 } }, required: ["message"] });
  const result = h("div", { role: "status" });
  const send = h("button.primary", { type: "submit" }, "Run");
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const read = form.read();
    if (!read) return;
    send.disabled = true;
    fill(result, h("p.muted", null, "Running…"));
    try {
      const input = isSchema ? read.value : /** @type {any} */ (read.value).message;
      const run = await post("runs", { agent: agent.name, input, create_thread: true });
      fill(result, runResult(run));
    } catch (error) {
      fill(result, problemView(error));
    }
    send.disabled = false;
    changed();
  };
  return h("section.card", { "aria-labelledby": "try-it" }, h("h3", { id: "try-it" }, "Try it"), h("form", { novalidate: true, on: { submit } }, form.element, send), result);
}

/** @param {any} run */
function runResult(run) {
  const texts = (run.output ?? []).flatMap((/** @type {any} */ message) => message.parts).map((/** @type {any} */ part) => (part.content_encoding === "base64" ? `[${part.content_type}]` : part.content ?? part.content_url ?? "")).join("");
  return [
    h("p", null, `${run.status} · `, h("a", { href: placeOf(["threads", run.thread_id]) }, "Open the thread")),
    run.outcome?.error && h("p.failure", null, run.outcome.error.message),
    run.result !== undefined && run.result !== null ? textBlock(pretty(run.result), "Result") : texts ? textBlock(texts, "Result") : null,
  ];
}
