// @ts-check
// The processes of hosted agents: their resources and their standard error.

import { h, fill } from "../base/dom.js";
import { get } from "../base/api.js";
import { problemView } from "../base/problem_view.js";
import { size } from "../base/time.js";
import { textBlock } from "../chat/json_view.js";
import { dataTable } from "./data_table.js";

const MAX_ROWS = 20;

/** @param {any[]} processes */
export const processTable = (processes) => dataTable("Processes", ["Agent", "Process", "Memory", "State", ""], processes.slice(0, MAX_ROWS).map((it) => [it.agent, it.pid, it.memory_bytes ? size(it.memory_bytes) : "", it.idle ? "idle" : "in use", h("button.quiet", { type: "button", "aria-label": `Standard error of process ${it.pid}`, on: { click: () => showStderr(it.pid) } }, "Standard error")]));

/** @param {number} pid */
async function showStderr(pid) {
  const body = h("div.dialog-body", { role: "status" }, "Reading…");
  const close = h("button", { type: "button" }, "Close");
  const again = h("button", { type: "button" }, "Read again");
  const title = h("h2", { id: "stderr-title" }, `Standard error of process ${pid}`);
  const dialog = h("dialog.wide", { "aria-labelledby": "stderr-title" }, title, body, h("div.buttons", null, close, again));
  const read = async () => {
    try {
      const { text } = await get(`processes/${pid}/stderr`);
      fill(body, text ? textBlock(text, "Standard error", "terminal") : h("p.muted", null, "It has written nothing."));
    } catch (error) {
      fill(body, problemView(error));
    }
  };
  close.addEventListener("click", () => dialog.close());
  again.addEventListener("click", read);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  await read();
}
