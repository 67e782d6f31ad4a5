// Named checks: each runs by itself, prints one line, and fails alone.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { Editor } from "./editor.mjs";

// Milliseconds that one check may take.
const CHECK_LIMIT = 60_000;

/** Checks in the order in which they were declared. */
export class Suite {
  #checks = [];

  constructor(name) {
    this.name = name;
  }

  /** A check; one that `applies` to some targets only runs with those. */
  check(name, run, applies = () => true) {
    this.#checks.push({ name, run, applies });
  }

  /** Runs the checks that apply; gives how many ran and how many failed. */
  async run(target, only) {
    let ran = 0;
    let failed = 0;
    for (const { name, run, applies } of this.#checks) {
      if (!applies(target) || (only && !name.includes(only))) continue;
      ran += 1;
      const begun = performance.now();
      const editors = [];
      try {
        await bounded(run({ ...target, open: (command) => opened(target, command, editors) }));
        for (const editor of editors) if (editor.child.exitCode === null && editor.child.signalCode === null) await editor.close();
        console.log(`ok ${this.name}.${name} (${(performance.now() - begun).toFixed(0)} ms)`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED ${this.name}.${name}\n${error?.stack ?? error}`);
        if (error?.data) console.log(JSON.stringify(error.data));
        for (const editor of editors) await editor.kill();
      }
    }
    return { ran, failed };
  }
}

/** An agent that was launched and initialised. */
async function opened(target, command, editors) {
  const editor = new Editor(target, command);
  editors.push(editor);
  await editor.initialize();
  return editor;
}

async function bounded(work) {
  const over = new AbortController();
  const limit = pause(CHECK_LIMIT, undefined, { signal: over.signal }).then(() => {
    throw new Error(`the check took longer than ${CHECK_LIMIT} ms`);
  });
  limit.catch(() => {});
  try {
    await Promise.race([work, limit]);
  } finally {
    over.abort();
  }
}

/** Fails unless the call is refused with this code; gives the error. */
export async function refused(call, code) {
  let result;
  try {
    result = await call;
  } catch (error) {
    assert.equal(error.code, code, `${error.stack} ${JSON.stringify(error.data)}`);
    assert.ok(error.message, "the error has no message");
    return error;
  }
  assert.fail(`the call was answered: ${JSON.stringify(result)}`);
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Fails unless this is a UUID in small letters. */
export function isUuid(id, what) {
  assert.match(String(id), UUID, what);
}
