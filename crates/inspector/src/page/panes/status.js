// @ts-check
// The status of the server: its numbers, processes, open runs, latencies and last errors.

import { h, fill, svg } from "../base/dom.js";
import { Problem, get, request } from "../base/api.js";
import { keepFresh } from "../base/feed.js";
import { problemView } from "../base/problem_view.js";
import { placeOf } from "../base/router.js";
import { signOut } from "../base/sign_in.js";
import { ago, duration, milliseconds, plural, size } from "../base/time.js";
import { dataTable } from "./data_table.js";
import { histogramsOf, quantile, samplesOf } from "./metrics.js";
import { processTable } from "./processes.js";

const REFRESH_MS = 2_000;
const MAX_ROWS = 20;
const MAX_HISTOGRAMS = 24;

/** @type {import("../base/router.js").OpenSection} */
export function openStatus(root, signal) {
  const numbers = h("div.tiles");
  const tables = h("div");
  const latencies = h("div.histograms");
  const error = h("div", { role: "alert" });
  root.append(h("div.page", null, h("h1", { tabindex: -1 }, "Status"), error, numbers, tables, h("section", null, h("h2", null, "Latencies"), latencies), h("p.narrow-only", null, h("button", { type: "button", on: { click: signOut } }, "Sign out"))));
  const refresh = async () => {
    try {
      const [status, runs, failed, metrics] = await Promise.all([
        get("status").catch(refused), openRuns(), get("runs?status=failed&limit=10"),
        request("metrics").then((response) => response.text()).catch(refused),
      ]);
      if (signal.aborted) return;
      fill(error);
      fill(numbers, status ? tiles(status, runs) : h("p.muted", null, "The server’s own numbers need the right ‘server’."));
      fill(tables, status && [warnings(status), nodeTable(status), processTable(status.agents.list ?? []), clientTable(status)], runTable("Open runs", runs), runTable("Last errors", failed.items));
      const samples = samplesOf(metrics ?? "");
      const histograms = histogramsOf(samples).sort((one, other) => other.count - one.count).slice(0, MAX_HISTOGRAMS);
      fill(latencies, histograms.length > 0 ? histograms.map(histogramView) : h("p.muted", null, metrics === undefined ? "Metrics are not for this caller, or only at /metrics." : "Nothing was measured yet."));
    } catch (problem) {
      fill(error, problemView(problem));
    }
  };
  keepFresh(signal, refresh);
  const timer = setInterval(() => document.hidden || refresh(), REFRESH_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  return { show() {} };
}

/** Leaves out data that the caller may not see. @param {unknown} error @returns {undefined} */
function refused(error) {
  if (error instanceof Problem && (error.status === 403 || error.status === 404)) return undefined;
  throw error;
}

async function openRuns() {
  const lists = await Promise.all(["running", "interrupted", "queued", "cancelling"].map((status) => get(`runs?status=${status}&limit=${MAX_ROWS}`)));
  return lists.flatMap((list) => list.items);
}

/** Returns the number of open runs with a status. The list of runs has a limit. @param {any[]} runs @param {string} state */
function countOf(runs, state) {
  const count = runs.filter((run) => run.status === state).length;
  return count < MAX_ROWS ? count : `${MAX_ROWS} or more`;
}

/** @param {any} status @param {any[]} runs */
function tiles(status, runs) {
  const { runtime, store, agents } = status;
  const facts = [
    ["Running", runtime.running], ["In the queue", countOf(runs, "queued")], ["Wait for an answer", countOf(runs, "interrupted")], ["Threads", store.threads], ["Runs", store.runs], ["Agent processes", agents.processes],
    ["Streams", status.streams], ["Connections", status.connections], ["Store", size(store.bytes)], ["Up", duration(Date.now() - milliseconds(status.started_at))],
  ];
  return [
    facts.map(([name, value]) => h("div.tile", null, h("span.tile-value", null, typeof value === "number" ? value.toLocaleString("en") : value), h("span.muted", null, name))),
    h("p.muted.whole", null, `Version ${status.version} · process ${status.pid} · durability ${status.durability} · `, h("code", null, store.url)),
  ];
}

/** @param {any} status */
function warnings(status) {
  const lines = [status.store_problem, status.store.quarantined > 0 && `${plural(status.store.quarantined, "thread")} with damaged data`, ...status.dangerously.map((/** @type {string} */ name) => `Protection switched off: ${name}`), status.runtime.draining && "The server is shutting down", ...(status.agent_differences ?? []).map(difference)].filter(Boolean);
  return lines.length > 0 && h("ul.warnings", { "aria-label": "Warnings" }, lines.map((line) => h("li", null, line)));
}

/** @param {any} found */
const difference = ({ agent, variants, missing_on: missing }) => `Servers differ in the agent ${agent}: on ${variants.map((/** @type {string[]} */ names) => names.join(", ")).join(" | ")}${missing[0] ? `, missing on ${missing.join(", ")}` : ""}`;

/** @param {any} status */
const nodeTable = (status) => dataTable("Servers", ["Name", "State", "Open threads", "Agents"], (status.nodes ?? []).map((/** @type {any} */ it) => [it.name, it.alive && it.draining ? "draining" : it.this ? "this one" : it.alive ? "alive" : `silent for ${duration(it.silent_ms)}`, it.open_threads, (it.agents ?? []).join(", ")]));

/** @param {any} status */
const clientTable = (status) => dataTable("Connected programs", ["Program", "Agent", "Connected by", "Principal", "Sessions", "Folder", "Since"], (status.clients ?? []).slice(0, MAX_ROWS).map((/** @type {any} */ it) => [[it.name, it.version].filter(Boolean).join(" ") || it.pid || "a program", it.agent, it.transport, it.principal, sessionCounts(it.sessions ?? []), it.cwd ?? "", ago(it.since)]));

/** @param {{ controls: boolean }[]} sessions */
function sessionCounts(sessions) {
  const controlled = sessions.filter((it) => it.controls).length;
  return [controlled > 0 && `controls ${controlled}`, sessions.length > controlled && `observes ${sessions.length - controlled}`].filter(Boolean).join(", ");
}

/** @param {string} title @param {any[]} runs */
const runTable = (title, runs) => dataTable(title, ["Agent", "State", "Begun", "Details"], runs.slice(0, MAX_ROWS).map((run) => [h("a", { href: placeOf(["threads", run.thread_id]) }, run.agent), [h("span.dot", { "data-status": run.status }), ` ${run.status}`], ago(run.created_at), run.outcome?.error ? [h("code", null, run.outcome.error.code), ` ${run.outcome.error.message.slice(0, 200)}`] : duration(Date.now() - milliseconds(run.created_at))]));

const WIDTH = 240;
const HEIGHT = 48;

/** @param {import("./metrics.js").Histogram} histogram */
function histogramView(histogram) {
  const counts = histogram.buckets.map(({ count }, place) => count - (histogram.buckets[place - 1]?.count ?? 0));
  const highest = Math.max(1, ...counts);
  const width = WIDTH / counts.length;
  const isTime = /seconds/.test(histogram.name);
  const say = (/** @type {number} */ value) => (!Number.isFinite(value) ? "more" : isTime ? duration(value * 1000) : value.toLocaleString("en"));
  const bars = counts.map((count, place) => svg("rect", { x: place * width + 0.5, y: HEIGHT - (count / highest) * HEIGHT, width: Math.max(1, width - 1), height: (count / highest) * HEIGHT }, svg("title", {}, `up to ${say(histogram.buckets[place].most)}: ${count}`)));
  const median = say(quantile(histogram, 0.5));
  const slow = say(quantile(histogram, 0.99));
  const label = `${histogram.name} ${histogram.labels}: half within ${median}, 99 of 100 within ${slow}`;
  return h("figure.histogram", null, svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" }, bars), h("figcaption", null, h("strong", null, histogram.name.replace(/^trilogue_|_seconds$/g, "").replaceAll("_", " ")), " ", h("span.muted", null, `${histogram.labels} · ${plural(histogram.count, "time")} · half within ${median}, 99 % within ${slow}`)));
}
