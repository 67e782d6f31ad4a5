// @ts-check
// All threads with their activity. Can be filtered by text, agent and status.

import { h, fill } from "../base/dom.js";
import { allPages } from "../base/agents_list.js";
import { get } from "../base/api.js";
import { keepFresh } from "../base/feed.js";
import { icon } from "../base/icons.js";
import { placeOf } from "../base/router.js";
import { problemView } from "../base/problem_view.js";
import { ago, duration, milliseconds, shortId } from "../base/time.js";

/** The maximum number of threads and runs in the list, newest first. */
const MAX_THREADS = 1_000;
const MAX_RUNS = 1_000;
const FIRST_ROWS = 100;
const OPEN = new Set(["queued", "running", "interrupted", "cancelling"]);
const STATES = [["", "Any state"], ["open", "Open"], ["interrupted", "Waiting for an answer"], ["completed", "Done"], ["failed", "Failed"], ["cancelled", "Stopped"]];

/** @typedef {{ thread: any, runs: any[], words: string }} Row */

export class ThreadsList {
  /** @param {AbortSignal} signal */
  constructor(signal) {
    this.search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search threads", autocomplete: "off", "data-search": true });
    this.agent = h("select", { "aria-label": "Agent" });
    this.status = h("select", { "aria-label": "State" }, STATES.map(([value, label]) => h("option", { value }, label)));
    this.list = h("ul.rows", { "aria-label": "Threads" });
    this.note = h("p.muted.empty", { role: "status" });
    this.more = h("button.quiet", { type: "button", hidden: true, on: { click: () => this.showMore() } }, "Show more");
    this.element = h("nav.list-pane", { "aria-label": "Threads" },
      h("header", null, h("h1", null, "Threads"), h("a.button.primary", { href: "#/new", "data-new": true }, icon("plus"), "New")),
      h("div.filters", { role: "search" }, this.search, this.agent, this.status),
      this.note, this.list, this.more,
    );
    /** @type {Row[]} */
    this.rows = [];
    this.most = FIRST_ROWS;
    /** @type {string | undefined} */
    this.current = undefined;
    /** @type {((id: string) => void) | undefined} */
    this.onBeside = undefined;
    for (const field of [this.search, this.agent, this.status]) field.addEventListener("input", () => this.show());
    keepFresh(signal, () => this.refresh(signal));
    const ticking = setInterval(() => this.show(), 15_000);
    signal.addEventListener("abort", () => clearInterval(ticking));
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    try {
      const [threads, runs] = await Promise.all([allPages("threads", MAX_THREADS), allPages("runs", MAX_RUNS)]);
      if (signal.aborted) return;
      /** @type {Map<string, any[]>} */
      const byThread = new Map();
      for (const run of runs) byThread.set(run.thread_id, [...(byThread.get(run.thread_id) ?? []), run]);
      this.rows = threads.map((thread) => {
        const own = byThread.get(thread.id) ?? [];
        return { thread, runs: own, words: [thread.title, thread.id, ...own.map((run) => run.agent)].join(" ").toLowerCase() };
      });
      this.listAgents(runs);
      this.show();
    } catch (error) {
      fill(this.note, problemView(error));
    }
  }

  /** @param {any[]} runs */
  listAgents(runs) {
    const names = [...new Set(runs.map((run) => run.agent))].sort();
    const chosen = this.agent.value;
    if (this.agent.options.length === names.length + 1) return;
    fill(this.agent, h("option", { value: "" }, "Any agent"), names.map((name) => h("option", { value: name }, name)));
    this.agent.value = chosen;
  }

  /** @param {Row} row */
  isWanted({ runs, words }) {
    const text = this.search.value.trim().toLowerCase();
    const status = this.status.value;
    const last = runs[0]?.status;
    return words.includes(text) && (!this.agent.value || runs.some((run) => run.agent === this.agent.value)) && (!status || (status === "open" ? OPEN.has(last) : last === status));
  }

  show() {
    const wanted = this.rows.filter((row) => this.isWanted(row));
    const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest("[data-thread]"))?.dataset.thread;
    fill(this.list, wanted.slice(0, this.most).map((row) => this.row(row)));
    if (focused) /** @type {HTMLElement | null} */ (this.list.querySelector(`[data-thread="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
    this.more.hidden = wanted.length <= this.most;
    fill(this.note, this.onBeside ? ["Choose the thread to show beside this one. ", h("button.quiet", { type: "button", on: { click: () => this.stopChoosing() } }, "Cancel")] : wanted.length > 0 ? null : this.rows.length > 0 ? "No thread fits." : "No threads yet. Begin with “New”.");
  }

  /** @param {Row} row */
  row({ thread, runs }) {
    const run = runs[0];
    const took = run ? (run.ended_at ? milliseconds(run.ended_at) : Date.now()) - milliseconds(run.created_at) : undefined;
    const cost = costOf(thread, runs);
    const details = [run?.agent, took === undefined ? undefined : duration(took), cost, thread.node, ago(thread.updated_at)].filter(Boolean).join(" · ");
    const link = h("a.row", { href: placeOf(["threads", thread.id]), "data-thread": thread.id, "aria-current": thread.id === this.current ? "page" : null },
      h("span.dot", { "data-status": run?.status ?? "", role: "img", "aria-label": run?.status ?? "empty" }),
      h("span.row-title", null, thread.title || shortId(thread.id)),
      h("span.row-details.muted", null, details),
    );
    link.addEventListener("click", (event) => {
      if (!this.onBeside) return;
      event.preventDefault();
      const choose = this.onBeside;
      this.stopChoosing();
      choose(thread.id);
    });
    return h("li", null, link);
  }

  showMore() {
    this.most += FIRST_ROWS;
    this.show();
  }

  /**
   * @param {string | undefined} id
   * @param {string | undefined} beside
   */
  setCurrent(id, beside) {
    if (beside) this.onBeside = undefined;
    if (this.current === id) return;
    this.current = id;
    this.show();
  }

  /** Lets the reader choose a second thread. @param {(id: string) => void} choose */
  chooseBeside(choose) {
    this.onBeside = choose;
    this.show();
    /** @type {HTMLElement | null} */ (this.list.querySelector("[data-thread]"))?.focus();
  }

  stopChoosing() {
    this.onBeside = undefined;
    this.show();
  }
}

/** Returns the cost of a thread, if its agents report it. @param {any} thread @param {any[]} runs */
function costOf(thread, runs) {
  const of = (/** @type {any} */ metadata) => metadata?.usage?.cost ?? metadata?.cost;
  const costs = [of(thread.metadata), ...runs.map((run) => of(run.metadata))].filter((cost) => cost !== undefined && cost !== null);
  const amount = costs.reduce((sum, cost) => sum + Number(typeof cost === "object" ? cost.amount : cost), 0);
  if (!Number.isFinite(amount) || costs.length === 0) return undefined;
  const currency = costs.find((cost) => typeof cost === "object" && cost.currency)?.currency ?? "";
  return `${amount.toFixed(amount < 1 ? 4 : 2)} ${currency}`.trim();
}

/** Returns the pending questions. */
export async function pendingQuestions() {
  return (await get("interrupts?pending=true&limit=200")).items;
}
