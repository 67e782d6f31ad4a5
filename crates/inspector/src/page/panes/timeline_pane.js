// @ts-check
// Every event of a thread: filtered, live or paused, with a slider that shows the conversation
// at any event, and the forms of the chosen event.

import { h, fill, newId } from "../base/dom.js";
import { Problem, post, segment } from "../base/api.js";
import { changed } from "../base/feed.js";
import { problemView } from "../base/problem_view.js";
import { go, placeOf, setQuery } from "../base/router.js";
import { clock, duration, shortId } from "../base/time.js";
import { RosettaView } from "./rosetta.js";
import { StateView } from "./state_view.js";
import { summaryOf } from "./summary.js";
import { VirtualRows } from "./virtual_rows.js";

/** The gap that fills its bar. Shorter gaps use a logarithmic scale. */
const LONGEST_GAP_MS = 60_000;
const FETCH_PAUSE_MS = 40;

export class TimelinePane {
  /**
   * @param {import("../log/thread_log.js").ThreadLog} log
   * @param {AbortSignal} signal
   * @param {(number: number | undefined) => void} travel shows the conversation at an event, or now
   */
  constructor(log, signal, travel) {
    this.log = log;
    this.travel = travel;
    this.isLive = true;
    /** The options of the filters. */
    this.listed = "";
    /** @type {number | undefined} */
    this.timer = undefined;
    /** The listed numbers; `undefined` for all. @type {number[] | undefined} */
    this.numbers = undefined;
    this.paused = 0;
    this.rows = new VirtualRows("Events", (element, place) => this.drawRow(element, place), (place) => this.chooseRow(place));
    this.rosetta = new RosettaView(log);
    this.state = new StateView(log.id);
    this.type = h("select", { "aria-label": "Type" });
    this.run = h("select", { "aria-label": "Run" });
    this.jump = h("input", { type: "number", min: 1, "aria-label": "Go to event number", placeholder: "Number" });
    this.live = h("button.quiet", { type: "button", "aria-pressed": "true" }, "Live");
    this.count = h("span.muted", { role: "status" });
    const jump = h("form.jump", { on: { submit: (/** @type {Event} */ event) => {
      event.preventDefault();
      if (this.jump.value) this.choose(Number(this.jump.value));
    } } }, this.jump, h("button.quiet", { type: "submit" }, "Go"));
    this.controls = h("div.timeline-controls", null, this.type, this.run, jump, this.live, this.count);
    const id = newId();
    this.slider = h("input", { type: "range", id, min: 1, max: 1, value: 1 });
    this.as = h("output", { for: id });
    this.fork = h("button.quiet", { type: "button", on: { click: () => this.forkHere() } }, "Fork here");
    this.travelBar = h("div.travel", null, h("label", { for: id }, "As of event"), this.slider, this.as, this.fork);
    this.error = h("div", { role: "alert" });
    this.travelBar.append(this.error);
    for (const filter of [this.type, this.run]) filter.addEventListener("change", () => this.filter());
    this.live.addEventListener("click", () => (this.isLive ? this.pause() : this.goLive(true)));
    this.slider.addEventListener("input", () => this.slide());
    this.element = h("section.timeline", { "aria-label": "Timeline" }, this.controls, this.travelBar, this.state.element, this.rows.element, this.rosetta.element);
    log.addEventListener("change", () => this.refresh(), { signal });
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    requestAnimationFrame(() => this.refresh());
  }

  get last() {
    return this.isLive ? this.log.columns.last : this.paused;
  }

  /** @param {number} place */
  numberAt(place) {
    return this.numbers ? this.numbers[place] : place + 1;
  }

  refresh() {
    this.listFilters();
    const atEnd = this.rows.firstVisible + this.rows.visibleRows >= this.rows.count - 1;
    if (this.numbers) this.numbers = this.matching();
    this.rows.setCount(this.numbers ? this.numbers.length : this.last);
    if (this.isLive && atEnd && this.rows.chosen < 0) this.rows.scrollTo(this.rows.count - 1);
    const isAtEnd = this.isLive && Number(this.slider.value) >= Number(this.slider.max);
    this.slider.max = String(Math.max(1, this.last));
    if (isAtEnd) this.slider.value = this.slider.max;
    this.state.show(Math.min(Number(this.slider.value), this.last));
    this.as.textContent = `${Number(this.slider.value).toLocaleString("en")} of ${this.last.toLocaleString("en")}`;
    this.count.textContent = this.numbers ? `${this.numbers.length.toLocaleString("en")} of ${this.last.toLocaleString("en")}` : `${this.last.toLocaleString("en")} events`;
  }

  matching() {
    const numbers = this.log.columns.matching(this.type.value, this.run.value);
    return numbers?.filter((number) => number <= this.last);
  }

  filter() {
    this.numbers = this.matching();
    this.rows.chosen = -1;
    this.rows.setCount(this.numbers ? this.numbers.length : this.last);
    this.rows.scrollTo(0);
    this.refresh();
  }

  listFilters() {
    const { typeNames, runIds } = this.log.columns;
    const key = `${typeNames.length} ${runIds.length}`;
    if (key === this.listed) return;
    this.listed = key;
    const families = [...new Set(typeNames.filter(Boolean).map((name) => name.split(".")[0]))].sort();
    const types = families.flatMap((family) => [[family, `${family}.*`], ...typeNames.filter((name) => name.startsWith(`${family}.`)).sort().map((name) => [name, `  ${name}`])]);
    const runs = runIds.slice(1).map((id) => [id, `${this.log.conversation.runs.get(id)?.agent ?? "run"} ${shortId(id)}`]);
    for (const [select, all, options] of /** @type {const} */ ([[this.type, "Every type", types], [this.run, "Every run", runs]])) {
      const chosen = select.value;
      fill(select, h("option", { value: "" }, all), options.map(([value, label]) => h("option", { value }, label)));
      select.value = chosen;
    }
  }

  /**
   * @param {HTMLElement} element
   * @param {number} place
   */
  drawRow(element, place) {
    const number = this.numberAt(place);
    const { columns, pages } = this.log;
    const type = columns.typeNames[columns.types[number]] ?? "";
    const event = pages.find(number);
    if (!event && type) this.fetchSoon();
    const gap = columns.gap(number);
    const bar = h("span.gap", { title: `${duration(gap)} after the event before` }, h("span.gap-bar"), h("span.gap-text", null, gap >= 1 ? duration(gap) : ""));
    /** @type {HTMLElement} */ (bar.firstChild).style.width = `${Math.min(100, (Math.log1p(gap) / Math.log1p(LONGEST_GAP_MS)) * 100)}%`;
    element.dataset.family = type.split(".")[0];
    const run = columns.runIds[columns.runs[number]];
    fill(element, h("span.number", null, String(number)), h("span.type", null, type || "removed"), h("span.summary", null, event ? summaryOf(event) : type ? "…" : ""), bar, h("time", null, columns.times[number] ? clock(columns.times[number]) : ""), h("span.run", null, run ? shortId(run) : ""));
  }

  /** Fetches the visible events after the reader has stopped for a moment. */
  fetchSoon() {
    if (this.timer) return;
    this.timer = setTimeout(async () => {
      const first = Math.max(0, Math.floor(this.rows.firstVisible));
      const missing = [];
      for (let place = first; place <= Math.min(this.rows.count - 1, first + this.rows.visibleRows); place++) {
        const number = this.numberAt(place);
        if (this.log.columns.types[number] !== 0 && !this.log.pages.find(number)) missing.push(number);
      }
      // The next movement retries a failed page.
      await Promise.all(missing.map((number) => this.log.pages.need(number))).catch(() => undefined);
      this.timer = undefined;
      if (missing.length > 0) this.rows.draw(true);
    }, FETCH_PAUSE_MS);
  }

  /** @param {number} place */
  chooseRow(place) {
    const number = this.numberAt(place);
    setQuery({ event: number });
    this.rosetta.show(number);
  }

  /** Goes to an event by its number. @param {number} number */
  choose(number) {
    const wanted = Math.max(1, Math.floor(number));
    if (wanted > this.log.columns.last) {
      // The log may still be loading.
      const wait = () => {
        if (this.log.columns.last < wanted) return;
        this.log.removeEventListener("change", wait);
        this.choose(wanted);
      };
      this.log.addEventListener("change", wait);
      return;
    }
    const place = this.numbers ? this.numbers.findIndex((it) => it >= wanted) : wanted - 1;
    this.refresh();
    this.rows.scrollTo(place);
    if (this.rows.chosen !== place) this.rows.choose(place);
  }

  slide() {
    const number = Number(this.slider.value);
    if (number >= this.last && this.isLive) {
      this.travel(undefined);
    } else {
      if (this.isLive) this.pause();
      this.travel(number);
    }
    this.refresh();
  }

  pause() {
    this.paused = this.log.columns.last;
    this.isLive = false;
    this.live.setAttribute("aria-pressed", "false");
    this.live.textContent = "Paused";
    this.refresh();
  }

  /** @param {boolean} [tell] */
  goLive(tell = false) {
    this.isLive = true;
    this.live.setAttribute("aria-pressed", "true");
    this.live.textContent = "Live";
    this.slider.max = String(Math.max(1, this.last));
    this.slider.value = this.slider.max;
    if (tell) this.travel(undefined);
    this.refresh();
  }

  async forkHere() {
    fill(this.error);
    this.fork.disabled = true;
    try {
      const copy = await post(`threads/${segment(this.log.id)}/copy`, { until_event: Number(this.slider.value) });
      changed();
      go(placeOf(["threads", copy.id]));
    } catch (error) {
      const isOld = error instanceof Problem && error.code === "invalid_request" && error.message.includes("until_event");
      fill(this.error, isOld ? "This server cannot copy up to an event." : problemView(error));
    }
    this.fork.disabled = false;
  }
}
