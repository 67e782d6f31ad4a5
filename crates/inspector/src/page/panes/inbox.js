// @ts-check
// The pending questions of all threads, and the last answers.

import { h, fill } from "../base/dom.js";
import { get, segment } from "../base/api.js";
import { announce } from "../base/announce.js";
import { keepFresh } from "../base/feed.js";
import { problemView } from "../base/problem_view.js";
import { placeOf } from "../base/router.js";
import { ago, plural } from "../base/time.js";
import { QuestionView } from "../chat/question.js";

const MAX_NEWEST = 30;
/** How long an answered question stays visible. */
const STAYS_MS = 2_500;

/** @type {import("../base/router.js").OpenSection} */
export function openInbox(root, signal) {
  const inbox = new Inbox(root, signal);
  return { show: () => inbox.search.focus({ preventScroll: true }) };
}

class Inbox {
  /**
   * @param {HTMLElement} root
   * @param {AbortSignal} signal
   */
  constructor(root, signal) {
    /** @type {Map<string, QuestionView>} */
    this.views = new Map();
    this.search = h("h1", { tabindex: -1 }, "Inbox");
    this.pending = h("div.questions", { "aria-label": "Waiting questions", role: "group" });
    this.note = h("p.muted.empty", { role: "status" });
    this.answered = h("ul.rows");
    root.append(h("div.page.inbox", null, this.search, this.note, this.pending, h("section", { "aria-labelledby": "answered" }, h("h2", { id: "answered" }, "Answered"), this.answered)));
    keepFresh(signal, () => this.refresh(signal), (change) => change.kind === "interrupt");
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    try {
      const [pending, newest] = await Promise.all([get("interrupts?pending=true&limit=200"), get(`interrupts?limit=${MAX_NEWEST}`)]);
      if (signal.aborted) return;
      const answered = newest.items.filter((/** @type {any} */ it) => it.resolution);
      const closed = await this.closedDrafts([...pending.items, ...answered]);
      if (signal.aborted) return;
      this.showPending(pending.items, [...answered, ...closed]);
      fill(this.answered, answered.map(answeredRow));
    } catch (error) {
      fill(this.note, problemView(error));
    }
  }

  /** Returns the resolved questions with an unsent text that are not in `listed`. @param {any[]} listed */
  async closedDrafts(listed) {
    const ids = new Set(listed.map((it) => it.id));
    const views = [...this.views.values()].filter((view) => !ids.has(view.interrupt.id) && view.typedText() !== "");
    const found = await Promise.all(views.map((view) => get(`interrupts/${segment(view.interrupt.id)}`).catch(() => undefined)));
    return found.filter((it) => it?.resolution);
  }

  /**
   * @param {any[]} pending
   * @param {any[]} answered
   */
  showPending(pending, answered) {
    const open = new Map(pending.map((it) => [it.id, it]));
    for (const [id, view] of this.views) {
      if (open.has(id) || view.leaves || view.hasDraft) continue;
      const now = answered.find((it) => it.id === id);
      if (now) view.resolve(now);
      if (now && !view.isMine) announce("A question was answered elsewhere");
      // An unsent text stays until the reader dismisses it.
      if (!view.hasDraft) view.leaves = setTimeout(() => this.remove(id), view.isMine || view.error.hasChildNodes() || now ? STAYS_MS : 0);
    }
    // The oldest first: the longest wait is at the top, and new questions move nothing.
    for (const interrupt of [...pending].reverse()) {
      if (this.views.has(interrupt.id)) continue;
      const view = new QuestionView(interrupt, { where: where(interrupt) });
      view.element.tabIndex = -1;
      view.element.dataset.row = "";
      view.onDismiss = () => this.remove(interrupt.id);
      this.views.set(interrupt.id, view);
      this.pending.append(view.element);
    }
    this.showCount();
  }

  /** @param {string} id */
  remove(id) {
    this.views.get(id)?.element.remove();
    this.views.delete(id);
    this.showCount();
  }

  showCount() {
    const count = [...this.views.values()].filter((view) => !view.interrupt.resolution).length;
    fill(this.note, count === 0 ? "Nothing waits for you." : `${plural(count, "question")} ${count === 1 ? "waits" : "wait"}.`);
  }
}

/** @param {any} interrupt */
function where(interrupt) {
  return h("span.muted", null, interrupt.agent, " · ", interrupt.thread_id && h("a", { href: placeOf(["threads", interrupt.thread_id]) }, "thread"), " · ", ago(interrupt.raised_at));
}

/** @param {any} interrupt */
function answeredRow(interrupt) {
  const { resolution = {}, options, resolved_at } = interrupt;
  const answer = resolution.answer ?? {};
  const option = answer.option ?? resolution.option;
  const text = option != null ? options?.find((/** @type {any} */ it) => it.id === option)?.name ?? option : answer.value !== undefined ? JSON.stringify(answer.value) : answer.message ? answer.message.map((/** @type {any} */ it) => it.content ?? "").join(" ") : "";
  const prompt = interrupt.prompt?.[0]?.content ?? interrupt.kind;
  const who = resolution.kind === "answered" ? `by ${resolution.by ?? "somebody"}` : String(resolution.kind ?? "").replaceAll("_", " ");
  return h("li.answered", null, h("a.row", { href: interrupt.thread_id ? placeOf(["threads", interrupt.thread_id]) : "#/inbox" }, h("span.dot", { "data-status": resolution.kind === "answered" ? "completed" : "cancelled" }), h("span.row-title", null, String(prompt).split("\n")[0]), h("span.row-details.muted", null, [text, who, interrupt.agent, ago(resolved_at)].filter(Boolean).join(" · "))));
}
