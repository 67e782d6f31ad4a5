// @ts-check
// The files of a message: chosen, dropped or pasted, and kept until the message is sent.

import { h, fill } from "../base/dom.js";
import { announce } from "../base/announce.js";
import { fileName } from "../base/visible.js";
import { size } from "../base/time.js";

/** The maximum size of all files of one message: the server accepts 32 MiB, and base64 makes four bytes from three. */
export const MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024;

export class Attachments {
  /** @param {(problem: string) => void} onProblem */
  constructor(onProblem) {
    /** @type {File[]} */
    this.files = [];
    this.onProblem = onProblem;
    this.input = h("input.sr-only", { type: "file", multiple: true, tabindex: -1, "aria-hidden": "true" });
    this.input.addEventListener("change", () => {
      this.add(this.input.files ?? []);
      this.input.value = "";
    });
    this.list = h("ul.attachments", { "aria-label": "Attached files", hidden: true });
  }

  /** @param {Iterable<File>} files */
  add(files) {
    for (const file of files) {
      const total = this.files.reduce((sum, it) => sum + it.size, 0);
      if (total + file.size > MAX_ATTACHMENT_BYTES) {
        this.onProblem(`‘${fileName(file.name, "file")}’ (${size(file.size)}) does not fit: all files together may have ${size(MAX_ATTACHMENT_BYTES)}.`);
        continue;
      }
      this.files.push(file);
      announce(`Attached ${fileName(file.name, "file")}`);
    }
    this.show();
  }

  show() {
    this.list.hidden = this.files.length === 0;
    fill(this.list, this.files.map((file) => {
      const name = fileName(file.name, "file");
      const remove = h("button.copy", { type: "button", "aria-label": `Remove ${name}` }, "×");
      remove.addEventListener("click", () => {
        this.files = this.files.filter((it) => it !== file);
        this.show();
      });
      return h("li", null, name, h("span.muted", null, ` ${size(file.size)} `), remove);
    }));
  }

  clear() {
    this.files = [];
    this.show();
  }

  /** Returns the files as parts of a message. */
  parts() {
    return Promise.all(this.files.map(async (file) => ({
      content_type: file.type || "application/octet-stream",
      content_encoding: "base64",
      content: await base64(file),
      // An image is shown inside the message; any other file has a name.
      ...(file.type.startsWith("image/") ? {} : { name: fileName(file.name, "file") }),
    })));
  }
}

/** @param {File} file @returns {Promise<string>} */
function base64(file) {
  return new Promise((done, fail) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => done(String(reader.result).split(",", 2)[1] ?? ""));
    reader.addEventListener("error", () => fail(reader.error));
    reader.readAsDataURL(file);
  });
}
