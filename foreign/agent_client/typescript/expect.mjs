// Assertions about an agent.

import assert from "node:assert/strict";
import { Suite as CheckSuite } from "../../shared/check.cjs";
import { Editor } from "./editor.mjs";

/** Checks that open agents, which are closed after each check. */
export class Suite extends CheckSuite {
  async around(run, target) {
    const editors = [];
    try {
      await run({ ...target, open: (command) => opened(target, command, editors) });
      for (const editor of editors) if (editor.isOpen) await editor.close();
    } catch (error) {
      for (const editor of editors) await editor.kill();
      throw error;
    }
  }
}

/** A launched and initialised agent. */
async function opened(target, command, editors) {
  const editor = new Editor(target, command);
  editors.push(editor);
  await editor.initialize();
  return editor;
}

/** Fails unless the call is refused with this code; returns the error. */
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

/** Fails unless this is a UUID in lower case. */
export function isUuid(id, what) {
  assert.match(String(id), UUID, what);
}
