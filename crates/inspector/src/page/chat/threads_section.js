// @ts-check
// The list of threads, next to one thread, two threads, or a new one.

import { h, fill } from "../base/dom.js";
import { listAgents } from "../base/agents_list.js";
import { problemView } from "../base/problem_view.js";
import { go, placeOf, setQuery } from "../base/router.js";
import { ThreadsList } from "../panes/threads_list.js";
import { DifferenceView } from "./difference_view.js";
import { Composer } from "./composer.js";
import { ThreadPane } from "./thread_pane.js";

/** @type {import("../base/router.js").OpenSection} */
export function openThreads(root, signal) {
  return new ThreadsSection(root, signal);
}

class ThreadsSection {
  /**
   * @param {HTMLElement} root
   * @param {AbortSignal} signal
   */
  constructor(root, signal) {
    this.list = new ThreadsList(signal);
    this.content = h("div.content");
    this.root = h("div.threads", null, this.list.element, this.content);
    root.append(this.root);
    /** @type {ThreadPane[]} */
    this.panes = [];
    /** @type {{ view: DifferenceView, life: AbortController } | undefined} */
    this.difference = undefined;
    this.shown = "";
    signal.addEventListener("abort", () => this.panes.forEach((pane) => pane.close()));
    this.signal = signal;
  }

  /** @param {import("../base/router.js").Place} place */
  async show({ path, query }) {
    const id = path[0] === "threads" ? path[1] : undefined;
    const beside = query.get("beside") ?? undefined;
    this.list.setCurrent(id, beside);
    this.root.dataset.view = path.length > 1 || path[0] === "new" ? "thread" : "list";
    const wanted = JSON.stringify([id, beside, id ? "" : query.get("agent")]);
    if (wanted !== this.shown) {
      this.shown = wanted;
      let agents;
      try {
        agents = await listAgents();
      } catch (error) {
        this.shown = "";
        fill(this.content, problemView(error));
        return;
      }
      if (this.signal.aborted || wanted !== this.shown) return;
      this.open(id, beside, agents, query.get("agent") ?? undefined);
    }
    this.compare(beside !== undefined && query.has("difference"));
    this.panes[0]?.setQuery(new URLSearchParams(location.hash.split("?")[1] ?? ""));
  }

  /**
   * @param {string | undefined} id
   * @param {string | undefined} beside
   * @param {any[]} agents
   * @param {string | undefined} agent
   */
  open(id, beside, agents, agent) {
    this.compare(false);
    const kept = id ? this.panes.find((pane) => pane.id === id && !pane.options.isBeside) : undefined;
    for (const pane of this.panes) if (pane !== kept) pane.close();
    this.panes = [];
    this.content.toggleAttribute("data-two", beside !== undefined);
    if (!id) {
      fill(this.content, this.newThread(agents, agent));
      return;
    }
    const onBeside = () => this.list.chooseBeside((other) => setQuery({ beside: other }));
    const main = kept ?? new ThreadPane(id, { agents, isBeside: false, onBeside });
    this.panes.push(main);
    if (!kept) fill(this.content, main.element);
    if (beside) {
      const pane = new ThreadPane(beside, { agents, isBeside: true, onClose: () => setQuery({ beside: undefined, difference: undefined }), onDifference: () => setQuery({ difference: 1 }) });
      this.panes.push(pane);
      this.content.append(pane.element);
    }
  }

  /** Shows the difference between the two threads instead of the threads. @param {boolean} isWanted */
  compare(isWanted) {
    if (isWanted === (this.difference !== undefined)) return;
    this.content.toggleAttribute("data-difference", isWanted);
    if (this.difference) {
      this.difference.life.abort();
      this.difference.view.element.remove();
      this.difference = undefined;
    } else {
      const life = new AbortController();
      this.signal.addEventListener("abort", () => life.abort());
      const view = new DifferenceView(this.panes.map((pane) => pane.log), life.signal, () => setQuery({ difference: undefined }));
      this.difference = { view, life };
      this.content.append(view.element);
    }
  }

  /**
   * @param {any[]} agents
   * @param {string | undefined} agent
   */
  newThread(agents, agent) {
    const composer = new Composer({ agents, agent, onSent: (run) => go(placeOf(["threads", run.thread_id])) });
    const cards = agents.map((it) => {
      const card = h("button.agent-card", { type: "button", "aria-pressed": String(it.name === composer.agent.value) }, h("strong", null, it.name), h("span.muted", null, it.description || it.title || ""), it.unavailable && h("span.error-text", null, it.unavailable));
      card.addEventListener("click", () => {
        composer.agent.value = it.name;
        composer.agent.dispatchEvent(new Event("change"));
        if (!composer.text.hidden) composer.text.focus();
      });
      return card;
    });
    composer.agent.addEventListener("change", () => cards.forEach((card, place) => card.setAttribute("aria-pressed", String(agents[place].name === composer.agent.value))));
    return h("section.welcome", { "aria-label": "New thread" }, h("div.welcome-body", null, h("h2", null, "Talk to an agent"), agents.length === 0 ? h("p", null, "This server has no agents yet. ", h("code", null, "trilogue agents add"), " adds one.") : h("div.agent-cards", { role: "group", "aria-label": "Agents" }, cards)), composer.element);
  }
}
