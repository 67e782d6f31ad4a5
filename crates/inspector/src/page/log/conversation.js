// @ts-check
// The conversation at an event: the same reducer serves the chat and time travel.
//
// An item is copied on its first change after a snapshot. A snapshot therefore costs one list, not a whole conversation.

/** @typedef {any} Event One event of `/api/v1/threads/{id}/events`. */
/** @typedef {{ kind: "text", text: string } | { kind: "part", part: any }} Segment */
/** A source and its passage: characters of the message's texts, or a part that is not text. @typedef {{ start: number, end: number, part?: number, url?: string, title?: string, description?: string }} Cited */
/**
 * @typedef {object} Item
 * @property {string} key
 * @property {"message" | "thought" | "step" | "tool" | "plan" | "suggestions" | "question" | "end" | "note" | "output"} kind
 * @property {number} rev The number of the last event that changed the item.
 * @property {number} first The number of the item's first event.
 * @property {number} generation
 * @property {string} [runId]
 * @property {string} at
 * @property {string} [until]
 * @property {any} data
 */
/** @typedef {{ agent: string, status: string, createdAt: string, endedAt?: string, outcome?: any }} RunView */
/** @typedef {{ items: Item[], runs: Map<string, RunView>, roles: Map<string, string>, upTo: number }} Snapshot */

/** Returns whether annotations address the reader. An unknown audience hides nothing. @param {any} annotations */
function isForUser(annotations) {
  const audience = annotations?.audience;
  return !Array.isArray(audience) || audience.includes("user") || !audience.includes("assistant");
}

/** Returns whether the part's characters count for the positions of citations. @param {any} part */
export const isText = (part) => part.content != null && (part.content_encoding ?? "plain") === "plain" && /^text\//.test(part.content_type ?? "text/plain");

/** Counts characters. A text without surrogates has one UTF-16 unit per character. @param {string} text */
export const countCharacters = (text) => (/[\ud800-\udbff]/.test(text) ? [...text].length : text.length);

/**
 * Returns the passage of a citation: its range, its only index, the content of its part, or otherwise the end of the message so far.
 * @param {any} meta
 * @param {{ length: number, segments: Segment[] }} message the message before the part
 * @param {any} part
 * @param {boolean} hasContent
 * @returns {{ start: number, end: number, part?: number }}
 */
function passageOf(meta, { length, segments }, part, hasContent) {
  const start = meta.start_index ?? meta.end_index;
  const end = meta.end_index ?? meta.start_index;
  if (start != null) return end > start ? { start, end } : { start, end: start };
  if (!hasContent) return { start: length, end: length };
  if (isText(part)) return { start: length, end: length + countCharacters(part.content) };
  return { start: -1, end: -1, part: segments.length };
}

const OPEN = new Set(["queued", "running", "interrupted", "cancelling"]);

export class Conversation {
  constructor() {
    /** @type {Item[]} */
    this.items = [];
    /** @type {Map<string, number>} */
    this.places = new Map();
    /** @type {Map<string, RunView>} */
    this.runs = new Map();
    /** The roles of messages that have begun and have no content yet. @type {Map<string, string>} */
    this.roles = new Map();
    this.upTo = 0;
    this.generation = 0;
  }

  /** @returns {Snapshot} */
  snapshot() {
    this.generation++;
    const runs = new Map([...this.runs].map(([id, run]) => [id, { ...run }]));
    return { items: this.items.slice(), runs, roles: new Map(this.roles), upTo: this.upTo };
  }

  /** @param {Snapshot} snapshot */
  static from(snapshot) {
    const it = new Conversation();
    it.items = snapshot.items.slice();
    it.items.forEach((item, place) => it.places.set(item.key, place));
    it.runs = new Map([...snapshot.runs].map(([id, run]) => [id, { ...run }]));
    it.roles = new Map(snapshot.roles);
    it.upTo = snapshot.upTo;
    // A higher generation than every item, so that all items of the snapshot are copied before a change.
    it.generation = Number.MAX_SAFE_INTEGER;
    return it;
  }

  /** Returns the newest open run. */
  openRun() {
    for (const [id, run] of [...this.runs].reverse()) if (OPEN.has(run.status)) return { id, ...run };
    return undefined;
  }

  lastRun() {
    return [...this.runs.values()].at(-1);
  }

  /** @param {string} key */
  find(key) {
    const place = this.places.get(key);
    return place === undefined ? undefined : this.items[place];
  }

  /**
   * Returns the item with this key for a change by this event. Makes a missing item.
   * @param {string} key
   * @param {Item["kind"]} kind
   * @param {Event} event
   * @param {() => any} data
   * @returns {Item}
   */
  change(key, kind, event, data) {
    const place = this.places.get(key);
    if (place === undefined) {
      const item = { key, kind, rev: event.number, first: event.number, generation: this.generation, runId: event.run_id ?? undefined, at: event.at, data: data() };
      this.places.set(key, this.items.length);
      this.items.push(item);
      return item;
    }
    let item = this.items[place];
    if (item.generation !== this.generation) {
      item = { ...item, generation: this.generation, data: { ...item.data } };
      this.items[place] = item;
    }
    item.rev = event.number;
    return item;
  }

  /** @param {(item: Item) => boolean} isGone */
  remove(isGone) {
    this.items = this.items.filter((item) => !isGone(item));
    this.places = new Map(this.items.map((item, place) => [item.key, place]));
  }

  /** @param {Event} event */
  apply(event) {
    this.upTo = event.number;
    const [family] = String(event.type).split(".");
    if (family === "run") this.applyRun(event);
    else if (family === "message") this.applyMessage(event);
    else if (family === "tool") this.applyTool(event);
    else if (family === "interrupt") this.applyInterrupt(event);
    else if (family === "state") this.applyState(event);
    else if (family === "thread") this.applyThread(event);
  }

  /** @param {Event} event */
  applyRun(event) {
    const run = this.runs.get(event.run_id);
    if (event.type === "run.created") {
      // Suggestions are about the next prompt.
      this.remove((item) => item.kind === "suggestions");
      this.runs.set(event.run_id, { agent: event.agent, status: "queued", createdAt: event.at });
      if (event.input !== undefined && event.input !== null) {
        this.change(`i:${event.run_id}`, "output", event, () => ({ value: event.input, isInput: true }));
      }
    } else if (event.type === "run.result") {
      this.change(`o:${event.run_id}`, "output", event, () => ({})).data = { value: event.value };
    } else if (run) {
      if (event.type === "run.started" || event.type === "run.resumed") run.status = "running";
      if (event.type === "run.cancelling") run.status = "cancelling";
      if (event.type === "run.ended") {
        run.status = event.outcome?.status ?? "completed";
        run.endedAt = event.at;
        run.outcome = event.outcome;
        this.endOpenItems(event);
        if (run.status !== "completed") this.change(`e:${event.run_id}`, "end", event, () => ({ outcome: event.outcome }));
      }
    }
  }

  /** Ends the items that the run left open. @param {Event} event */
  endOpenItems(event) {
    for (let place = this.items.length - 1; place >= 0; place--) {
      const item = this.items[place];
      if (item.runId !== event.run_id) break;
      if (item.kind === "tool" && !item.data.status) {
        const ended = this.change(item.key, "tool", event, () => ({}));
        ended.data.status = "unfinished";
        ended.until = event.at;
      } else if ((item.kind === "message" && !item.data.done) || (item.kind === "thought" && !item.until)) {
        const ended = this.change(item.key, item.kind, event, () => ({}));
        ended.data.done = true;
        ended.until = event.at;
      }
    }
  }

  /** @param {Event} event */
  message(event) {
    const key = `m:${event.message_id}`;
    const make = () => ({ role: this.roles.get(event.message_id) ?? "agent", segments: /** @type {Segment[]} */ ([]), citations: [], length: 0, done: false });
    const known = this.find(key);
    const item = this.change(key, "message", event, make);
    if (known && known !== item) {
      item.data.segments = known.data.segments.slice();
      item.data.citations = known.data.citations.slice();
    }
    return item;
  }

  /** @param {Event} event @param {string} text */
  addText(event, text) {
    const { data } = this.message(event);
    const { segments } = data;
    data.length += countCharacters(text);
    const last = segments.at(-1);
    if (last?.kind === "text") segments[segments.length - 1] = { kind: "text", text: last.text + text };
    else segments.push({ kind: "text", text });
  }

  /** @param {Event} event */
  applyMessage(event) {
    if (event.type === "message.started") {
      this.roles.set(event.message_id, event.role);
      // The message that a run's input became contains the same text.
      const input = `i:${event.run_id}`;
      if (event.role === "user" && this.places.has(input)) this.remove((item) => item.key === input);
    } else if (event.type === "message.delta") {
      this.addText(event, event.text);
    } else if (event.type === "message.part") {
      this.applyPart(event, event.part);
    } else if (event.type === "message.completed") {
      if (this.find(`m:${event.message_id}`)) {
        const item = this.message(event);
        item.data.done = true;
        item.until = event.at;
      }
      this.roles.delete(event.message_id);
    } else if (event.type === "message.thought") {
      this.applyThought(event);
    }
  }

  /** Consecutive pieces form one thought, unless their ids differ. @param {Event} event */
  applyThought(event) {
    const update = event.original?.value?.update;
    if (!isForUser(update?.content?.annotations)) return;
    const id = event.message_id ?? update?.messageId;
    const last = this.items.at(-1);
    const isSame = last?.kind === "thought" && last.runId === event.run_id && !last.until && last.data.id === id;
    const item = this.change(isSame ? last.key : `h:${event.number}`, "thought", event, () => ({ text: "", id }));
    item.data.text += event.text;
    item.data.last = event.at;
  }

  /** @param {Event} event @param {any} part */
  applyPart(event, part) {
    if (!isForUser(part.extra?.x_trilogue?.block?.annotations)) {
      this.change(`s:${event.number}`, "step", event, () => ({ tool_name: "For the agent only", message: String(part.content ?? part.content_url ?? part.content_type) }));
      return;
    }
    const meta = part.metadata;
    const hasContent = part.content != null || part.content_url != null || part.blob != null;
    if (meta?.kind === "trajectory") {
      this.change(`s:${event.number}`, "step", event, () => meta);
    } else if (meta?.kind === "citation") {
      const item = this.message(event);
      item.data.citations.push({ ...passageOf(meta, item.data, part, hasContent), url: meta.url, title: meta.title, description: meta.description });
    }
    if (!hasContent) return;
    if (!part.name && isText(part) && /^text\/(plain|markdown)\b/.test(part.content_type)) this.addText(event, part.content);
    else {
      const { data } = this.message(event);
      data.segments.push({ kind: "part", part });
      if (isText(part)) data.length += countCharacters(part.content);
    }
  }

  /** @param {Event} event */
  applyTool(event) {
    const key = `t:${event.run_id}:${event.call_id}`;
    // Only the original contains the content of a coding agent's call, including differences.
    const update = event.original?.value?.update;
    const item = this.change(key, "tool", event, () => ({ tool: event.tool ?? "", title: event.title ?? event.call_id, content: [] }));
    const data = item.data;
    if (event.type === "tool.started") Object.assign(data, { tool: event.tool, title: event.title, input: event.input });
    if (update?.title) data.title = update.title;
    if (update?.kind) data.action = update.kind;
    if (Array.isArray(update?.content)) data.content = update.content.map((/** @type {any} */ it) => ({ form: "block", block: it }));
    else if (event.content) data.content = event.content.map((/** @type {any} */ part) => ({ form: "part", part }));
    if (event.type === "tool.ended") {
      data.status = event.status;
      if (event.output !== undefined) data.output = event.output;
      item.until = event.at;
    }
  }

  /** @param {Event} event */
  applyInterrupt(event) {
    const run = this.runs.get(event.run_id);
    if (event.type === "interrupt.raised") {
      const interrupt = { ...event.interrupt, run_id: event.run_id, raised_at: event.at, agent: run?.agent };
      this.change(`q:${event.interrupt.id}`, "question", event, () => ({ interrupt }));
      if (run) run.status = "interrupted";
    } else if (event.type === "interrupt.resolved") {
      const key = `q:${event.interrupt_id}`;
      const known = this.find(key);
      if (!known) return;
      const interrupt = { ...known.data.interrupt, resolution: event.resolution, resolved_at: event.at };
      this.change(key, "question", event, () => ({})).data.interrupt = interrupt;
    } else if (event.type === "interrupt.rule_applied") {
      this.change(`n:${event.number}`, "note", event, () => ({ text: `The rule ‘${event.rule}’ ${event.allowed ? "allowed" : "rejected"} this.` }));
    }
  }

  /** @param {Event} event */
  applyState(event) {
    if (event.type === "state.plan") {
      this.change(`p:${event.run_id ?? "thread"}`, "plan", event, () => ({})).data = { entries: event.entries };
    } else if (event.type === "state.plan_updated") {
      const { plan_id: id, entries, markdown, path } = event;
      this.change(`p:${event.run_id ?? "thread"}:${id}`, "plan", event, () => ({})).data = { id, entries, markdown, path };
    } else if (event.type === "state.plan_removed") {
      this.remove((item) => item.kind === "plan" && item.data.id === event.plan_id);
    } else if (event.type === "state.subagent") {
      const data = this.change(`s:${event.thread_id}`, "note", event, () => ({})).data;
      data.text = `Sub-agent ${subagentWords(event)}.`;
      data.thread = event.thread_id;
    } else if (event.type === "state.custom" && event.kind === "prompt_suggestions_update") {
      this.remove((item) => item.kind === "suggestions");
      if (event.data?.suggestions?.length) this.change("suggestions", "suggestions", event, () => ({ suggestions: event.data.suggestions }));
    } else if (event.type === "state.output") {
      this.change(`o:${event.run_id}`, "output", event, () => ({})).data = { value: event.output };
    }
  }

  /** @param {Event} event */
  applyThread(event) {
    if (event.type === "thread.created" && event.copied_from) {
      this.change("copied", "note", event, () => ({ text: "Copied from another thread", thread: event.copied_from }));
    } else if (event.type === "thread.run_removed") {
      this.runs.delete(event.removed_run_id);
      this.remove((item) => item.runId === event.removed_run_id);
      this.change(`n:${event.number}`, "note", event, () => ({ text: `A run was removed: ${String(event.reason).replaceAll("_", " ")}.` }));
    }
  }
}

/**
 * A sub-agent's title and what it does.
 *
 * @param {any} event @returns {string}
 */
export function subagentWords({ title, thread_id: thread, state, stop_reason: reason }) {
  const does = state && `${state.replaceAll("_", " ")}${reason ? ` (${reason.replaceAll("_", " ")})` : ""}`;
  return [title ?? thread, does].filter(Boolean).join(": ");
}
