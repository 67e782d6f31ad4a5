// @ts-check
// The state of a thread's stream, and a button that breaks it, to show that nothing is lost.

import { h, fill } from "../base/dom.js";
import { plural } from "../base/time.js";

const WORDS = { connecting: "Connecting", open: "Live", waiting: "Reconnecting", refused: "Not connected" };

/**
 * @param {import("../log/thread_log.js").ThreadLog} log
 * @param {AbortSignal} signal
 */
export function connectionButton(log, signal) {
  const label = h("span");
  const dot = h("span.dot");
  const button = h("button.quiet.connection", { type: "button", "aria-expanded": "false" }, dot, label);
  const report = h("p", { role: "status" });
  const facts = h("dl.facts");
  /** @type {{ events: number } | undefined} */
  let before;
  const breakIt = h("button", { type: "button" }, "Break the connection");
  const card = h("div.card.connection-card", { popover: "auto", role: "dialog", "aria-label": "Connection" }, h("h4", null, "Connection"), facts, breakIt, report);
  breakIt.addEventListener("click", () => {
    before = { events: log.columns.last };
    log.breakConnection();
    show();
  });
  button.addEventListener("click", () => {
    card.togglePopover();
    const at = button.getBoundingClientRect();
    card.style.top = `${at.bottom + 6}px`;
    card.style.left = `${Math.max(8, Math.min(at.left, innerWidth - card.offsetWidth - 8))}px`;
  });
  card.addEventListener("toggle", (event) => button.setAttribute("aria-expanded", String(/** @type {ToggleEvent} */ (event).newState === "open")));
  const show = () => {
    const { counts, state } = log;
    label.textContent = WORDS[state];
    dot.dataset.status = state === "open" ? "live" : state === "refused" ? "failed" : "queued";
    const rows = [["Last event", log.columns.last], ["Connections", counts.connections], ["Missing numbers", counts.missing], ["Doubles", counts.doubles]];
    fill(facts, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, String(value)))));
    if (before) {
      const isBack = state === "open";
      fill(report, `${plural(before.events, "event")} before the break, ${log.columns.last.toLocaleString("en")} now. `, isBack ? verdict(counts) : "Connecting again…");
    }
  };
  log.addEventListener("change", show, { signal });
  signal.addEventListener("abort", () => card.remove());
  show();
  return h("div", null, button, card);
}

/** @param {{ missing: number, doubles: number }} counts */
function verdict({ missing, doubles }) {
  if (missing === 0 && doubles === 0) return h("strong.good", null, "No hole, no double.");
  return h("strong", null, `${plural(missing, "missing number")} (removed runs leave some), ${plural(doubles, "double")} left out.`);
}
