// @ts-check
// An agent's question and its answer: the same card in a conversation and in the inbox.

import { h, fill, isSafeAddress } from "../base/dom.js";
import { Problem, get, post, segment } from "../base/api.js";
import { announce } from "../base/announce.js";
import { changed } from "../base/feed.js";
import { problemView } from "../base/problem_view.js";
import { ago } from "../base/time.js";
import { labelled, pretty, textBlock } from "./json_view.js";
import { schemaForm } from "./schema_form.js";
import { contentViews } from "./tool_view.js";

/** A question with a longer text hides its middle. */
const MAX_PLAIN_CHARACTERS = 4_000;
const ELSEWHERE = new Set(["interrupt_resolved", "interrupt_mismatch"]);

/** @param {any} part */
const textOf = (part) => (part.content_encoding === "base64" ? "" : part.content ?? part.content_url ?? "");

export class QuestionView {
  /**
   * @param {any} interrupt
   * @param {{ where?: Node }} [options] `where`: more information about its place
   */
  constructor(interrupt, { where } = {}) {
    this.interrupt = interrupt;
    this.isSending = false;
    this.isMine = false;
    /** The text in the fields when the answer was sent. */
    this.sentText = "";
    /** Whether the card shows a text that was not sent. */
    this.hasDraft = false;
    /** Removes the card from its list, if the list removes answered questions. @type {(() => void) | undefined} */
    this.onDismiss = undefined;
    /** The timer that removes the card from the inbox. @type {number | undefined} */
    this.leaves = undefined;
    this.body = h("div.question-body", null, about(interrupt));
    this.answerPlace = h("div.answer");
    /** Explains why answers are disabled. */
    this.withheld = h("p.muted", { role: "status" });
    this.error = h("div", { role: "alert" });
    this.element = h("section.question", { "aria-label": "Question", "data-id": interrupt.id },
      h("header", null, h("strong", null, title(interrupt)), where),
      this.body,
      this.withheld,
      this.answerPlace,
      this.error,
    );
    new MutationObserver(() => this.withhold()).observe(this.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-hidden"] });
    this.showAnswer();
  }

  /** Returns whether a part of the question is hidden. */
  hasHidden() {
    return this.body.querySelector("[data-hidden]") !== null;
  }

  /** Disables all answers except a rejection until the page shows the whole question. */
  withhold() {
    const waits = !this.interrupt.resolution && this.hasHidden();
    const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (this.answerPlace.querySelectorAll(".options button:not([data-effect=reject]), button[type=submit]"));
    for (const button of buttons) button.disabled = waits;
    fill(this.withheld, waits && "Show all of it before you agree.");
  }

  /** @param {import("../log/conversation.js").Item} item */
  update(item) {
    this.resolve(item.data.interrupt);
  }

  /** @param {any} interrupt */
  resolve(interrupt) {
    const wasOpen = !this.interrupt.resolution;
    this.interrupt = { ...this.interrupt, ...interrupt };
    if (!wasOpen || !this.interrupt.resolution) return;
    // The event of the reader's own answer can arrive before the response. It is then not another client's answer.
    const draft = this.isMine || this.isSending ? "" : this.typedText();
    this.showAnswer();
    if (draft !== "") this.keepDraft(draft);
  }

  /** Returns the texts in the fields. Another client's answer must not delete them. */
  typedText() {
    const fields = /** @type {NodeListOf<HTMLInputElement | HTMLTextAreaElement>} */ (this.answerPlace.querySelectorAll("textarea, input:not([type=checkbox], [type=radio], [type=password])"));
    return [...fields].map((field) => field.value).filter((text) => text.trim() !== "").join("\n");
  }

  /** @param {string} draft */
  keepDraft(draft) {
    this.hasDraft = true;
    fill(this.error, h("div.notice", null,
      h("p", null, `${closing(this.interrupt.resolution)} Your answer was not used. You had written:`),
      textBlock(draft, "Your text"),
      this.onDismiss && h("button.quiet", { type: "button", on: { click: this.onDismiss } }, "Dismiss"),
    ));
  }

  showAnswer() {
    const { resolution, resolved_at } = this.interrupt;
    this.element.toggleAttribute("data-open", !resolution);
    if (resolution) {
      fill(this.answerPlace, h("p.resolution", null, resolutionText(this.interrupt), resolved_at && h("span.muted", null, ` · ${ago(resolved_at)}`)));
      fill(this.error);
    } else fill(this.answerPlace, this.controls());
    this.withhold();
  }

  controls() {
    const { kind, options, schema, payload } = this.interrupt;
    if (options?.length) {
      return h("div.options", { role: "group", "aria-label": "Answers" }, options.map((/** @type {any} */ option) =>
        h("button", { type: "button", "data-effect": option.effect, on: { click: () => this.answer({ option: option.id }, option.effect === "reject") } }, option.name, option.always && h("span.badge", null, "from now on")),
      ));
    }
    if (kind === "message") return this.messageForm();
    if (kind === "url") return this.addressForm(payload);
    return this.form(schema ?? payload?.schema ?? payload?.requestedSchema ?? {});
  }

  /** @param {any} schema */
  form(schema) {
    const form = schemaForm(schema, { isAnswer: true });
    const send = h("button.primary", { type: "submit" }, "Send answer");
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const read = form.read();
      if (read) this.answer({ value: read.value });
    };
    return h("form", { novalidate: true, on: { submit } }, form.element, send);
  }

  messageForm() {
    const text = h("textarea", { rows: 3, "aria-label": "Your answer", required: true });
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      if (text.value.trim() !== "") this.answer({ text: text.value });
      else text.focus();
    };
    return h("form", { on: { submit } }, text, h("button.primary", { type: "submit" }, "Send answer"));
  }

  /** Builds the form for a URL. The URL is shown completely, and opens only after a click. @param {any} payload */
  addressForm(payload) {
    const address = String(payload?.url ?? "");
    const isWeb = /^https?:/i.test(address) && isSafeAddress(address);
    return h("div", null,
      h("p.address-box", null, h("code", null, address)),
      h("div.options", null,
        isWeb && h("a.button", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, "Open the address"),
        h("button.primary", { type: "button", on: { click: () => this.answer({ value: true }) } }, "Done"),
        h("button", { type: "button", "data-effect": "reject", on: { click: () => this.answer({ value: false }, true) } }, "Decline"),
      ),
    );
  }

  /**
   * @param {any} body
   * @param {boolean} [isRejection]
   */
  async answer(body, isRejection = false) {
    if (this.isSending || (this.hasHidden() && !isRejection)) return;
    this.isSending = true;
    this.sentText = this.typedText();
    this.element.toggleAttribute("data-busy", true);
    fill(this.error);
    try {
      const interrupt = await post(`interrupts/${segment(this.interrupt.id)}/answer`, body);
      this.isMine = true;
      this.resolve(interrupt);
      announce("Answered");
    } catch (error) {
      await this.refuse(error);
    }
    this.isSending = false;
    this.element.toggleAttribute("data-busy", false);
    changed();
  }

  /** @param {unknown} error */
  async refuse(error) {
    if (error instanceof Problem && ELSEWHERE.has(error.code)) {
      const interrupt = await get(`interrupts/${segment(this.interrupt.id)}`).catch(() => undefined);
      if (interrupt?.resolution) {
        this.resolve(interrupt);
        if (this.sentText !== "") this.keepDraft(this.sentText);
        else fill(this.error, h("p.notice", null, `${closing(interrupt.resolution)} Your answer was not used.`));
        return;
      }
    }
    fill(this.error, problemView(error));
  }
}

/** @param {any} interrupt */
function title(interrupt) {
  if (interrupt.kind === "permission") return "May the agent do this?";
  if (interrupt.kind === "message") return "The agent asks";
  if (interrupt.kind === "url") return "The agent wants you to open an address";
  return interrupt.schema?.title ?? String(interrupt.kind).replaceAll("_", " ");
}

/** Builds everything that a question is about: its prompt, part by part, and the tool call or other data. @param {any} interrupt */
function about(interrupt) {
  const { kind, prompt = [], payload } = interrupt;
  const call = payload?.toolCall ?? payload?.tool_call;
  const parts = prompt.map(textOf).filter(Boolean).map((/** @type {string} */ text) => (text.length > MAX_PLAIN_CHARACTERS ? textBlock(text, "Question") : h("p.plain", null, text)));
  if (!call) {
    // The form or URL below already shows the content of an elicitation of the Agent Client Protocol.
    const isAskedFor = typeof payload?.mode === "string" && (kind === "form" || kind === "url");
    return [parts, payload != null && !isAskedFor && textBlock(pretty(payload), "Question")];
  }
  parts.push(h("p.muted", null, [call.kind, call.name].filter(Boolean).join(" · ") || "tool call"));
  const files = [].concat(call.locations ?? []).map((/** @type {any} */ it) => (it?.line > 0 ? `${it.path}:${it.line}` : it?.path)).filter(Boolean);
  if (files.length > 0) parts.push(textBlock(files.join("\n"), "Files"));
  const { command, args = [], ...others } = call.rawInput ?? {};
  const isCommand = call.kind === "execute" && typeof command === "string";
  if (isCommand) parts.push(textBlock(`$ ${[command].concat(args).join(" ")}`, "Command", "terminal"));
  parts.push(...contentViews([].concat(call.content ?? []).map((/** @type {any} */ block) => ({ form: "block", block })), call.kind === "execute"));
  const isAllCommand = isCommand && Object.keys(others).length === 0 && [].concat(args).every((it) => typeof it === "string");
  const { toolCallId, status, title: _, name, kind: __, locations, rawInput, content, ...rest } = call;
  if (payload._meta != null) rest["request _meta"] = payload._meta;
  return [parts, !isAllCommand && labelled("Input", rawInput), Object.keys(rest).length > 0 && textBlock(pretty(rest), "More")];
}

/** @param {any} resolution */
const closing = ({ kind, by }) => (kind === "answered" ? `Answered elsewhere${by ? ` by ${by}` : ""}.` : "The question is closed.");

/** @param {any} interrupt */
function resolutionText(interrupt) {
  const { kind, by, answer, reason, option } = interrupt.resolution;
  const name = (/** @type {string} */ id) => interrupt.options?.find((/** @type {any} */ it) => it.id === id)?.name ?? id;
  if (kind === "timed_out") return `No answer in time${option ? `: ${name(option)}` : ""}`;
  if (kind !== "answered") return `${kind === "cancelled" ? "Cancelled" : "Withdrawn"}${reason ? `: ${String(reason).replaceAll("_", " ")}` : ""}`;
  const text = answer?.option != null ? name(answer.option) : answer?.message ? answer.message.map(textOf).join(" ") : JSON.stringify(answer?.value);
  return [h("strong", null, text ?? "Answered"), by ? ` — ${by}` : ""];
}
