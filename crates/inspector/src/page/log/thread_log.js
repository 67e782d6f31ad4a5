// @ts-check
// The log of one thread in this page: one stream, shared by all views of the thread.

import { ROOT, segment } from "../base/api.js";
import { Stream } from "../base/sse.js";
import { Columns } from "./columns.js";
import { Conversation } from "./conversation.js";
import { Pages } from "./pages.js";

/** The number of events between two snapshots, which is the most that time travel replays. */
const SNAPSHOT_EVERY = 500;
/** How long a log without readers stays connected, in case a reader returns soon. */
const LINGER_MS = 5_000;
/** How long a hidden page stays connected. A browser opens only a few connections to a server, for all its pages together. */
const HIDDEN_MS = 60_000;

/** Dispatches `change` at most once per frame, after any change of the log. */
export class ThreadLog extends EventTarget {
  /** @param {string} id */
  constructor(id) {
    super();
    this.id = id;
    this.columns = new Columns();
    this.conversation = new Conversation();
    this.pages = new Pages(id);
    /** @type {import("./conversation.js").Snapshot[]} */
    this.snapshots = [this.conversation.snapshot()];
    /** @type {"connecting" | "open" | "waiting" | "refused"} */
    this.state = "connecting";
    /** @type {import("../base/api.js").Problem | undefined} */
    this.problem = undefined;
    /** The counters of received events, which show that a break loses nothing. */
    this.counts = { events: 0, doubles: 0, missing: 0, breaks: 0, connections: 0 };
    this.readers = 0;
    this.isTold = false;
    this.stream = new Stream(`${ROOT}/threads/${segment(id)}/events`, {
      lastId: () => (this.columns.last > 0 ? String(this.columns.last) : undefined),
      onState: (state, problem) => {
        if (state === "open") this.counts.connections++;
        this.state = state;
        this.problem = problem;
        this.tell();
      },
      onMessage: (message) => this.receive(message),
    });
  }

  /** @param {import("../base/sse.js").Message} message */
  receive(message) {
    if (message.event === "gap" || message.event === "error") return;
    const event = JSON.parse(message.data);
    this.counts.events++;
    if (event.number <= this.columns.last) {
      this.counts.doubles++;
      return;
    }
    // Numbers have no gaps, except for removed runs.
    this.counts.missing += event.number - this.columns.last - 1;
    if (this.conversation.upTo - this.snapshots[this.snapshots.length - 1].upTo >= SNAPSHOT_EVERY) {
      this.snapshots.push(this.conversation.snapshot());
    }
    this.columns.add(event);
    this.pages.add(event, message.data.length);
    try {
      this.conversation.apply(event);
    } catch (error) {
      // An unreadable event is left out of the conversation, but stays in the timeline.
      console.error(error);
    }
    this.tell();
  }

  tell() {
    if (this.isTold) return;
    this.isTold = true;
    // A hidden page draws no frames, but its listeners still need the change.
    const tell = () => {
      this.isTold = false;
      this.dispatchEvent(new Event("change"));
    };
    if (document.hidden) setTimeout(tell, 250);
    else requestAnimationFrame(tell);
  }

  /**
   * Returns the conversation at an event.
   * @param {number} number
   * @param {AbortSignal} [signal]
   */
  async asOf(number, signal) {
    let low = 0;
    let high = this.snapshots.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.snapshots[middle].upTo <= number) low = middle;
      else high = middle - 1;
    }
    const conversation = Conversation.from(this.snapshots[low]);
    for (let next = conversation.upTo + 1; next <= number; next++) {
      const event = this.pages.find(next) ?? (await this.pages.need(next)).events.get(next);
      if (signal?.aborted) return undefined;
      if (event) conversation.apply(event);
    }
    return conversation;
  }

  breakConnection() {
    this.counts.breaks++;
    this.stream.break();
  }

  close() {
    this.stream.close();
  }
}

/** @type {Map<string, ThreadLog>} */
const open = new Map();

/**
 * Returns the log of a thread, until the signal ends.
 * @param {string} id
 * @param {AbortSignal} signal
 */
export function openLog(id, signal) {
  let log = open.get(id);
  if (!log || log.state === "refused") {
    log?.close();
    log = new ThreadLog(id);
    open.set(id, log);
  }
  const shared = log;
  shared.readers++;
  signal.addEventListener("abort", () => {
    shared.readers--;
    setTimeout(() => {
      if (shared.readers > 0 || open.get(id) !== shared) return;
      shared.close();
      open.delete(id);
    }, LINGER_MS);
  });
  return shared;
}

/** Retries all broken connections at once. */
export function hurryAll() {
  for (const log of open.values()) log.stream.hurry();
}

let hidden = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (!document.hidden) hurryAll();
  else hidden = setTimeout(() => open.forEach((log) => log.stream.rest()), HIDDEN_MS);
});
