// @ts-check
// One event in every protocol: the stored event, the form that each protocol sends, and the concepts that are lost.

import { h, fill } from "../base/dom.js";
import { get, segment } from "../base/api.js";
import { problemView } from "../base/problem_view.js";
import { textBlock } from "../chat/json_view.js";

const TITLES = /** @type {Record<string, string>} */ ({ client: "Agent Client Protocol", communication: "Agent Communication Protocol", connect: "Agent Connect Protocol" });

/** @typedef {{ concept: string, verdict: string, because?: string | null, carrier?: string | null }} Fidelity */

export class RosettaView {
  /** @param {import("../log/thread_log.js").ThreadLog} log */
  constructor(log) {
    this.log = log;
    this.number = 0;
    this.body = h("div.forms");
    this.title = h("h3", null, "Event");
    this.element = h("section.rosetta", { "aria-label": "Forms of the event", hidden: true }, h("header", null, this.title, h("button.quiet.icon-button", { type: "button", "aria-label": "Close", on: { click: () => (this.element.hidden = true) } }, "×")), this.body);
  }

  /** @param {number} number */
  async show(number) {
    this.number = number;
    this.element.hidden = false;
    fill(this.title, `Event ${number.toLocaleString("en")}`);
    try {
      const forms = await get(`threads/${segment(this.log.id)}/events/${number}/forms`);
      if (this.number === number) fill(this.body, this.forms(forms));
    } catch (error) {
      if (this.number === number) fill(this.body, problemView(error));
    }
  }

  /** @param {any} forms */
  forms({ event, forms = [] }) {
    const { original, ...own } = event;
    return [
      event.run_id && requestsView(event.run_id),
      formCard("Trilogue", "/api/v1", [own], []),
      forms.map((/** @type {any} */ { title, protocol, frames, fidelity }) => {
        const [name, detail] = String(title ?? TITLES[protocol] ?? protocol).split(": ");
        return formCard(name, detail ?? "", frames ?? [], fidelity ?? []);
      }),
      original && formCard("As the agent sent it", `${original.dialect} ${original.version}`, [original.value ?? original.base64], []),
    ];
  }
}

/** Shows the run's request as code. Fetched when the reader opens it. @param {string} run */
function requestsView(run) {
  const body = h("div");
  const load = async () => {
    if (body.hasChildNodes()) return;
    try {
      const { items } = await get(`runs/${segment(run)}/requests`);
      fill(body, items.map((/** @type {any} */ { name, about, code }) => h("div.labelled", null, h("h5", null, name), h("p.muted", null, about), textBlock(code, name))));
    } catch (error) {
      fill(body, problemView(error));
    }
  };
  return h("details.form-card.whole", { on: { toggle: load } }, h("summary", null, "Run again from a program"), body);
}

const VERDICTS = /** @type {Record<string, string>} */ ({ carried: "Carried", extension: "In an extension", lost: "Lost" });

/**
 * @param {string} title
 * @param {string} detail
 * @param {unknown[]} frames
 * @param {Fidelity[]} fidelity
 */
function formCard(title, detail, frames, fidelity) {
  return h("section.form-card", { "aria-label": title },
    h("header", null, h("h4", null, title), h("span.muted", null, detail)),
    frames.length === 0 ? h("p.muted", null, "Sends nothing for this event.") : frames.map((frame) => textBlock(typeof frame === "string" ? frame : JSON.stringify(frame, null, 2), title)),
    fidelity.length > 0 && h("ul.fidelity", { "aria-label": "What comes through" }, fidelity.map(({ concept, verdict, because, carrier }) => h("li", { "data-verdict": verdict }, h("strong", null, `${VERDICTS[verdict] ?? verdict}: ${concept}`), ` ${because ?? carrier ?? ""}`))),
  );
}
