// @ts-check
// One thread: its header, its conversation, a form for messages, and optionally its timeline.

import { h, fill } from "../base/dom.js";
import { get, post, segment } from "../base/api.js";
import { announce } from "../base/announce.js";
import { changed, keepFresh } from "../base/feed.js";
import { icon } from "../base/icons.js";
import { problemView, reloadView } from "../base/problem_view.js";
import { duration, milliseconds, shortId } from "../base/time.js";
import { visible } from "../base/visible.js";
import { setQuery } from "../base/router.js";
import { openLog } from "../log/thread_log.js";
import { connectionButton } from "../panes/connection.js";
import { TimelinePane } from "../panes/timeline_pane.js";
import { Composer } from "./composer.js";
import { ConversationView } from "./conversation_view.js";

const WORDS = /** @type {Record<string, string>} */ ({ queued: "Waiting for its turn", running: "Working", interrupted: "Waiting for an answer", cancelling: "Stopping", completed: "Done", failed: "Failed", cancelled: "Stopped", timed_out: "Timed out" });

export class ThreadPane {
  /**
   * @param {string} id
   * @param {{ agents: any[], isBeside: boolean, onClose?: () => void, onBeside?: () => void, onDifference?: () => void }} options
   */
  constructor(id, options) {
    this.id = id;
    this.options = options;
    this.life = new AbortController();
    this.log = openLog(id, this.life.signal);
    this.conversation = new ConversationView();
    /** The event at which the conversation is shown; `undefined` for now. @type {number | undefined} */
    this.asOf = undefined;
    this.travels = new AbortController();
    /** @type {string | undefined} */
    this.saidState = undefined;
    /** The server that owns the thread, if there are several. @type {string | undefined} */
    this.node = undefined;
    /** The programs that have the thread open. @type {string | undefined} */
    this.clients = undefined;
    this.agentIsChosen = false;
    /** @type {TimelinePane | undefined} */
    this.timeline = undefined;
    this.title = h("h2", null, "Thread");
    this.state = h("p.state");
    this.notice = h("div", { role: "status" });
    this.timelineButton = h("button.quiet", { type: "button", "aria-pressed": "false", on: { click: () => this.toggleTimeline() } }, "Timeline");
    this.composer = new Composer({ agents: options.agents, threadId: id, onSent: () => this.goLive(), onStop: () => this.stop() });
    this.column = h("div.thread-column", null, this.notice, this.conversation.element, this.composer.element);
    this.panes = h("div.panes", null, this.column);
    this.element = h("section.thread", { "aria-label": "Thread" }, this.head(), this.panes);
    this.log.addEventListener("change", () => this.show(), { signal: this.life.signal });
    keepFresh(this.life.signal, () => this.refreshTitle(), (change) => change.thread_id === id);
    const ticking = setInterval(() => this.showState(), 1000);
    this.life.signal.addEventListener("abort", () => clearInterval(ticking));
    this.show();
  }

  head() {
    const { isBeside, onClose, onBeside, onDifference } = this.options;
    return h("header.thread-head", null,
      isBeside ? null : h("a.back.icon-button", { href: "#/threads", "aria-label": "All threads" }, icon("back")),
      h("div.titles", null, this.title, this.state),
      h("div.actions", null,
        connectionButton(this.log, this.life.signal),
        isBeside ? null : this.timelineButton,
        onBeside && h("button.quiet.wide-only", { type: "button", on: { click: onBeside } }, "Side by side"),
        onDifference && h("button.quiet", { type: "button", on: { click: onDifference } }, "Difference"),
        onClose && h("button.quiet.icon-button", { type: "button", "aria-label": "Close this thread", on: { click: onClose } }, icon("close")),
      ),
    );
  }

  async refreshTitle() {
    const thread = await get(`threads/${segment(this.id)}`, { signal: this.life.signal });
    this.node = thread.node;
    this.clients = clientNames(thread.clients ?? []);
    fill(this.title, thread.title || `Thread ${shortId(this.id)}`);
    this.element.setAttribute("aria-label", visible(`Thread: ${thread.title ?? this.id}`.slice(0, 120)));
  }

  show() {
    const { conversation, problem } = this.log;
    if (problem) {
      fill(this.notice, problem.code === "invalid_cursor" ? reloadView() : problemView(problem));
      return;
    }
    if (this.asOf === undefined) this.conversation.show(conversation);
    this.showState();
    const last = conversation.lastRun();
    if (last && !this.agentIsChosen) {
      this.agentIsChosen = true;
      this.composer.agent.value = last.agent;
      this.composer.agentChanged();
    }
  }

  showState() {
    const { conversation } = this.log;
    const run = conversation.lastRun();
    const open = conversation.openRun();
    const status = open?.status ?? run?.status;
    this.composer.setBusy(open !== undefined && open.status !== "cancelling");
    this.element.dataset.state = status ?? "";
    const took = run ? (run.endedAt ? milliseconds(run.endedAt) : Date.now()) - milliseconds(run.createdAt) : 0;
    const words = status ? WORDS[status] ?? status : "Empty";
    if (words !== this.saidState && this.saidState !== undefined) announce(`${run?.agent ?? "Agent"}: ${words}`);
    this.saidState = words;
    fill(this.state, h("span.dot", { "data-status": status ?? "" }), [words, run?.agent, run ? duration(Math.max(0, took)) : undefined, this.node, this.clients].filter(Boolean).join(" · "));
  }

  async stop() {
    const run = this.log.conversation.openRun();
    if (!run) return;
    try {
      await post(`runs/${segment(run.id)}/cancel`, undefined);
    } catch (error) {
      fill(this.notice, problemView(error));
    }
    changed();
  }

  toggleTimeline() {
    setQuery(this.timeline ? { view: undefined, event: undefined } : { view: "timeline" });
  }

  /** Shows or hides the timeline, according to the address. @param {URLSearchParams} query */
  setQuery(query) {
    const isWanted = query.get("view") === "timeline";
    this.timelineButton.setAttribute("aria-pressed", String(isWanted));
    this.element.toggleAttribute("data-timeline", isWanted);
    if (isWanted && !this.timeline) {
      const pane = new AbortController();
      this.life.signal.addEventListener("abort", () => pane.abort());
      this.timelineLife = pane;
      this.timeline = new TimelinePane(this.log, pane.signal, (number) => this.travel(number));
      this.panes.append(this.timeline.element);
      const event = Number(query.get("event"));
      if (event > 0) this.timeline.choose(event);
    } else if (!isWanted && this.timeline) {
      this.timelineLife?.abort();
      this.timeline.element.remove();
      this.timeline = undefined;
      this.goLive();
    }
  }

  /** Shows the conversation at an event. @param {number | undefined} number */
  async travel(number) {
    this.travels.abort();
    this.asOf = number;
    this.element.toggleAttribute("data-past", number !== undefined);
    if (number === undefined) {
      this.conversation.show(this.log.conversation);
      return;
    }
    const travel = (this.travels = new AbortController());
    try {
      const conversation = await this.log.asOf(number, travel.signal);
      if (conversation && !travel.signal.aborted) this.conversation.show(conversation);
    } catch (error) {
      fill(this.notice, problemView(error));
    }
  }

  goLive() {
    this.conversation.follows = true;
    if (this.asOf === undefined) return;
    this.timeline?.goLive();
    this.travel(undefined);
  }

  close() {
    this.life.abort();
    this.element.remove();
  }
}

/**
 * The programs that have a thread open, and which of them the agent calls.
 * @param {{ name?: string, principal: string, controls: boolean }[]} clients
 */
const clientNames = (clients) => clients.map((it) => `${visible((it.name ?? "a program").slice(0, 40))} of ${visible(it.principal)} ${it.controls ? "controls" : "observes"}`).join(", ");
