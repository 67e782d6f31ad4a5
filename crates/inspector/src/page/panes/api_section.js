// @ts-check
// Every route of the server, from its OpenAPI document: its parameters, its responses, and a form to try it.

import { h, fill } from "../base/dom.js";
import { get, send } from "../base/api.js";
import { changed } from "../base/feed.js";
import { problemView } from "../base/problem_view.js";
import { placeOf } from "../base/router.js";
import { duration } from "../base/time.js";
import { pretty, textBlock } from "../chat/json_view.js";
import { schemaForm } from "../chat/schema_form.js";

/** The maximum number of shown characters of a response. A stream is stopped there. */
const MAX_CHARACTERS = 200_000;
const MAX_DEPTH = 6;

/** @typedef {{ id: string, method: string, path: string, summary: string, right: string, parameters: any[], body?: any, responses: [string, any][], types: string[] }} Route */

/** @type {any} */
let schemas = {};

/** @param {any} document @returns {Route[]} */
function routesOf(document) {
  schemas = document.components?.schemas ?? {};
  return Object.entries(document.paths).flatMap(([path, item]) => Object.entries(/** @type {any} */ (item)).map(([method, it]) => ({
    id: it.operationId, method: method.toUpperCase(), path, summary: it.summary, right: it["x-right"] ?? "",
    parameters: it.parameters ?? [], body: it.requestBody?.content?.["application/json"]?.schema, responses: Object.entries(it.responses),
    types: Object.keys(it.responses[200]?.content ?? {}),
  })));
}

/** Resolves the references of a schema, up to a readable depth. @param {any} schema @param {number} depth @returns {any} */
function whole(schema, depth = 0) {
  if (Array.isArray(schema)) return schema.map((it) => whole(it, depth));
  if (schema === null || typeof schema !== "object") return schema;
  const { $ref, ...rest } = schema;
  if ($ref) return depth > MAX_DEPTH ? { title: $ref.split("/").pop() } : { ...whole(schemas[$ref.split("/").pop()] ?? {}, depth + 1), ...rest };
  return Object.fromEntries(Object.entries(schema).map(([name, part]) => [name, whole(part, depth)]));
}

/** Returns an initial value with the required members. @param {any} schema @returns {any} */
function example(schema) {
  if (schema?.default !== undefined) return schema.default;
  if (schema?.const !== undefined) return schema.const;
  if (schema?.enum) return schema.enum[0];
  const choice = schema?.oneOf ?? schema?.anyOf;
  if (choice) return example(choice[0]);
  const type = Array.isArray(schema?.type) ? schema.type[0] : schema?.type;
  if (type === "object") return Object.fromEntries((schema.required ?? []).map((/** @type {string} */ name) => [name, example(schema.properties?.[name])]));
  return /** @type {Record<string, unknown>} */ ({ string: "", array: [], integer: 0, number: 0, boolean: false })[type] ?? null;
}

/** Returns a description without its code marks. @param {string} text */
const plain = (text) => text.replaceAll("`", "");

/** @type {import("../base/router.js").OpenSection} */
export function openApi(root, signal) {
  const list = h("ul.rows", { "aria-label": "Routes" });
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search routes", autocomplete: "off", "data-search": true });
  const content = h("div.content.scrolls");
  const frame = h("div.threads", null, h("nav.list-pane", { "aria-label": "Routes" }, h("header", null, h("h1", null, "API")), h("div.filters", { role: "search" }, search), list), content);
  root.append(frame);
  /** @type {Route[]} */
  let routes = [];
  let current = "";
  const showList = () => {
    const text = search.value.trim().toLowerCase();
    const wanted = routes.filter((it) => `${it.method} ${it.path} ${it.summary}`.toLowerCase().includes(text));
    fill(list, wanted.map((it) => h("li", null, h("a.row", { href: placeOf(["api", it.id]), "data-row": true, "aria-current": it.id === current ? "page" : null }, h("span.row-title", null, h("span.method", null, it.method), " ", it.path.replace("/api/v1", "")), h("span.row-details.muted", null, it.summary)))));
  };
  search.addEventListener("input", showList);
  return {
    async show({ path }) {
      current = path[1] ?? "";
      frame.dataset.view = current ? "thread" : "list";
      try {
        if (routes.length === 0) routes = routesOf(await get("openapi.json"));
        if (signal.aborted) return;
        showList();
        const route = routes.find((it) => it.id === current);
        fill(content, route ? routeView(route, signal) : h("p.muted.empty", null, current ? `Route ‘${current}’ not found.` : ["Choose a route. The document is at ", h("code", null, "/api/v1/openapi.json"), "."]));
      } catch (error) {
        fill(content, problemView(error));
      }
    },
  };
}

/** @param {Route} route @param {AbortSignal} signal */
function routeView(route, signal) {
  const body = route.body && whole(route.body);
  return h("article.page", { "aria-label": route.id },
    h("header.page-head", null, h("a.back.icon-button", { href: "#/api", "aria-label": "All routes" }, "‹"), h("h2", null, h("span.method", null, route.method), " ", h("code", null, route.path))),
    h("p", null, route.summary, route.right && h("span.muted", null, ` · needs the right ‘${route.right}’`)),
    tryRoute(route, body, signal),
    body && h("details", null, h("summary", null, "What the body may have"), textBlock(pretty(body), "Schema of the body")),
    h("section", null, h("h3", null, "Responses"), route.responses.map(([status, it]) => {
      const schema = Object.values(it.content ?? {})[0]?.schema;
      return Number(status) < 300 && schema ? h("details", null, h("summary", null, `${status}: ${plain(it.description)}`), textBlock(pretty(whole(schema)), `Schema of ${status}`)) : h("p.muted", null, `${status}: ${plain(it.description)}`);
    })),
  );
}

/** @param {Route} route @param {any} body @param {AbortSignal} signal */
function tryRoute(route, body, signal) {
  /** @type {Record<string, any>} */
  const properties = Object.fromEntries(route.parameters.map((it) => [it.name, { type: "string", title: it.name, description: it.name.includes("*") ? `${it.description} Write it as NAME=VALUE.` : it.description }]));
  const required = route.parameters.filter((it) => it.required).map((it) => it.name);
  if (route.types.length > 1) properties.Accept = { enum: route.types, default: route.types[0] };
  const parameters = Object.keys(properties).length > 0 ? schemaForm({ type: "object", properties, required }) : undefined;
  const json = body && schemaForm({ title: "Body", default: example(body) });
  const result = h("div", { role: "status" });
  const button = h("button.primary", { type: "submit" }, "Send");
  const stop = h("button", { type: "button", hidden: true }, "Stop");
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const values = parameters ? parameters.read()?.value : {};
    const read = values && json ? json.read() : { value: undefined };
    if (!values || !read) return;
    const wanted = requestOf(route, /** @type {any} */ (values), read.value);
    const abort = new AbortController();
    stop.addEventListener("click", () => abort.abort(), { signal: abort.signal });
    button.disabled = true;
    stop.hidden = false;
    await showResponse(wanted, result, AbortSignal.any([abort.signal, signal]));
    abort.abort();
    button.disabled = false;
    stop.hidden = true;
    if (wanted.method !== "GET") changed();
  };
  return h("section.card", { "aria-labelledby": "try-it" }, h("h3", { id: "try-it" }, "Try it"), h("form", { novalidate: true, on: { submit } }, parameters?.element, json?.element, h("div.buttons", null, button, stop)), result);
}

/** @typedef {{ method: string, path: string, headers: Record<string, string>, body: unknown }} Wanted */

/** @param {Route} route @param {Record<string, string>} values @param {unknown} body @returns {Wanted} */
function requestOf(route, values, body) {
  let path = route.path;
  const query = new URLSearchParams();
  const accept = values.Accept ?? route.types[0];
  const headers = /** @type {Record<string, string>} */ (accept ? { accept } : {});
  for (const it of route.parameters) {
    const value = values[it.name];
    if (value === undefined) continue;
    if (it.in === "path") path = path.replace(`{${it.name}}`, encodeURIComponent(value));
    else if (it.in === "header") headers[it.name.toLowerCase()] = value;
    else if (it.name.includes("*")) query.append(it.name.replace("*", value.split("=")[0]), value.split("=").slice(1).join("="));
    else query.append(it.name, value);
  }
  return { method: route.method, path: query.size > 0 ? `${path}?${query}` : path, headers, body };
}

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {Wanted} wanted */
function curl({ method, path, headers, body }) {
  const data = body === undefined ? "" : ` \\\n  -H 'content-type: application/json' -d ${quoted(JSON.stringify(body))}`;
  const fields = Object.entries(headers).map(([name, value]) => ` -H ${quoted(`${name}: ${value}`)}`).join("");
  return `curl -sS -X ${method} -H "x-api-key: $TRILOGUE_TOKEN"${fields} \\\n  ${quoted(location.origin + path)}${data}`;
}

/** @param {Wanted} wanted @param {HTMLElement} place @param {AbortSignal} signal */
async function showResponse(wanted, place, signal) {
  const began = performance.now();
  const head = h("p.muted", null, "Waiting…");
  const box = h("div");
  fill(place, head, box, h("details", null, h("summary", null, "As curl"), textBlock(curl(wanted), "curl")));
  let text = "";
  try {
    const response = await send(wanted.path, { ...wanted, signal });
    fill(head, h("strong", null, String(response.status)), ` · ${duration(performance.now() - began)} · ${response.headers.get("content-type") ?? "no content"}`);
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader?.read(); part && !part.done && text.length < MAX_CHARACTERS; part = await reader?.read()) {
      text += part.value;
      fill(box, textBlock(text, "Response"));
    }
    await reader?.cancel();
    if (/json/.test(response.headers.get("content-type") ?? "") && text.length < MAX_CHARACTERS) fill(box, textBlock(pretty(JSON.parse(text)), "Response"));
  } catch (error) {
    if (!signal.aborted) fill(box, problemView(error));
    else if (text === "") fill(head, "Stopped");
  }
}
