// @ts-check
// The form for a message: the agent, its configuration, the text, files, and the buttons to send and to stop.

import { h, fill } from "../base/dom.js";
import { Problem, newKey, post } from "../base/api.js";
import { changed } from "../base/feed.js";
import { icon } from "../base/icons.js";
import { problemView } from "../base/problem_view.js";
import { size } from "../base/time.js";
import { CommandList } from "./command_list.js";
import { Attachments, MAX_ATTACHMENT_BYTES } from "./attachments.js";
import { schemaForm } from "./schema_form.js";

/** @typedef {any} Agent */
/** @typedef {{ agents: Agent[], agent?: string, threadId?: string, onSent: (run: any) => void, onStop?: () => void }} ComposerOptions */

/** Returns the single text member of an agent's schema, if it is the only member. @param {Agent} agent */
function textMember(agent) {
  const properties = agent?.input?.schema?.properties;
  const names = Object.keys(properties ?? {});
  return names.length === 1 && properties[names[0]]?.type === "string" ? names[0] : undefined;
}

export class Composer {
  /** @param {ComposerOptions} options */
  constructor(options) {
    this.options = options;
    this.isSending = false;
    /** A message that is sent again has the same key, so that it starts no second run. */
    this.key = newKey();
    this.error = h("div", { role: "alert" });
    this.attachments = new Attachments((problem) => fill(this.error, h("p.failure", null, problem)));
    this.text = h("textarea", { rows: 1, "aria-label": "Message", placeholder: "Write a message", enterkeyhint: "send" });
    this.agent = h("select", { "aria-label": "Agent" }, options.agents.map((agent) => h("option", { value: agent.name }, agent.name)));
    if (options.agent) this.agent.value = options.agent;
    this.commands = new CommandList(this.text, () => this.agent.value);
    this.form = h("div");
    this.settings = h("div.settings", { hidden: true });
    this.settingsButton = h("button.quiet.icon-button", { type: "button", "aria-label": "Settings of the agent", "aria-expanded": "false", title: "Settings", on: { click: () => this.toggleSettings() } }, icon("gear"));
    this.attach = h("button.quiet.icon-button", { type: "button", "aria-label": `Attach files, up to ${size(MAX_ATTACHMENT_BYTES)}`, title: `Attach files, up to ${size(MAX_ATTACHMENT_BYTES)}`, on: { click: () => this.attachments.input.click() } }, icon("clip"));
    this.send = h("button.primary.icon-button", { type: "submit", "aria-label": "Send", title: "Send (Enter)" }, icon("send"));
    this.stop = h("button.stop.icon-button", { type: "button", "aria-label": "Stop the agent", title: "Stop the agent", hidden: true, on: { click: () => this.options.onStop?.() } }, icon("stop"));
    this.element = h("form.composer", { "aria-label": "New message", novalidate: true },
      this.error, this.settings, this.form,
      this.commands.element,
      h("div.composer-box", null, this.attachments.list, this.text,
        h("div.composer-row", null, this.agent, this.attach, this.attachments.input, this.settingsButton, h("span.spring"), this.stop, this.send)),
    );
    this.listen();
    this.agentChanged();
  }

  listen() {
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.agent.addEventListener("change", () => this.agentChanged());
    this.text.addEventListener("keydown", (event) => {
      if (this.commands.takesKey(event)) return;
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    this.text.addEventListener("paste", (event) => {
      const files = event.clipboardData?.files;
      if (!files?.length || !this.takesFiles()) return;
      event.preventDefault();
      this.attachments.add(files);
    });
    this.element.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.element.toggleAttribute("data-drop", true);
    });
    this.element.addEventListener("dragleave", () => this.element.toggleAttribute("data-drop", false));
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.element.toggleAttribute("data-drop", false);
      if (event.dataTransfer?.files.length && this.takesFiles()) this.attachments.add(event.dataTransfer.files);
    });
  }

  current() {
    return this.options.agents.find((agent) => agent.name === this.agent.value);
  }

  takesFiles() {
    return this.current()?.input?.kind !== "schema";
  }

  agentChanged() {
    const agent = this.current();
    const isForm = !this.takesFiles() && !textMember(agent);
    this.inputForm = isForm ? schemaForm(agent?.input?.schema ?? {}) : undefined;
    fill(this.form, this.inputForm?.element);
    this.text.hidden = isForm;
    this.attach.hidden = !this.takesFiles();
    if (!this.takesFiles()) this.attachments.clear();
    const schema = agent?.config_schema;
    this.configForm = schema?.properties && Object.keys(schema.properties).length > 0 ? schemaForm({ ...schema, required: [] }) : undefined;
    this.settingsButton.hidden = !this.configForm;
    if (!this.configForm) this.settings.hidden = true;
    fill(this.settings, this.configForm && [h("h4", null, `Settings of ${agent.name}`), this.configForm.element]);
  }

  toggleSettings() {
    this.settings.hidden = !this.settings.hidden;
    this.settingsButton.setAttribute("aria-expanded", String(!this.settings.hidden));
    if (!this.settings.hidden) /** @type {HTMLElement | null} */ (this.settings.querySelector("input, select, textarea"))?.focus();
  }

  /** Shows the stop button if a run is open. @param {boolean} isBusy */
  setBusy(isBusy) {
    this.stop.hidden = !isBusy;
  }

  /** Returns the input for the agent; `undefined` if there is nothing to send. */
  async input() {
    const text = this.text.value;
    if (this.inputForm) return this.inputForm.read()?.value;
    if (!this.takesFiles()) {
      const member = textMember(this.current());
      return text.trim() === "" || !member ? undefined : { [member]: text };
    }
    if (text.trim() === "" && this.attachments.files.length === 0) return undefined;
    const parts = [...(text === "" ? [] : [{ content_type: "text/plain", content: text }]), ...(await this.attachments.parts())];
    return [{ role: "user", parts }];
  }

  async submit() {
    if (this.isSending) return;
    this.isSending = true;
    this.send.disabled = true;
    try {
      const config = this.configForm && !this.settings.hidden ? this.configForm.read() : { value: {} };
      const input = config && (await this.input());
      if (config && input !== undefined) await this.start(input, config.value);
    } catch (error) {
      // After a refusal, the next attempt is a new request. Without a response, it is the same request.
      if (error instanceof Problem && error.status > 0) this.key = newKey();
      fill(this.error, problemView(error));
    } finally {
      this.isSending = false;
      this.send.disabled = false;
    }
  }

  /** @param {unknown} input @param {any} config */
  async start(input, config) {
    const hasConfig = config && Object.keys(config).length > 0;
    const thread = this.options.threadId ? { thread_id: this.options.threadId } : { create_thread: true };
    const body = { agent: this.agent.value, input, mode: "async", ...thread, ...(hasConfig ? { config } : {}) };
    const run = await post("runs", body, { headers: { "idempotency-key": this.key } });
    this.key = newKey();
    this.text.value = "";
    this.attachments.clear();
    fill(this.error);
    changed();
    this.options.onSent(run);
  }
}
