// A run's request, copied from the page and executed unchanged: by a shell, by both official Python clients, and through a pipe.

import { execFile, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { api, assert, check, openPage, options, quiet, run } from "./browser.mjs";

const execute = promisify(execFile);
const env = { ...process.env, TRILOGUE_TOKEN: options.token };
/** Texts that every shell and language must treat as text only. */
const TEXT = "it's \"quoted\" $(id) `id` \\n ${x} {x} # ä\u202e\u{e0041}\nsecond line";
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const python = (folder) => (code) => execute(`${options.modules}/../${folder}/python/bin/python`, ["-c", code], { env });
const shell = (code) => execute("sh", ["-c", code], { env });

/** Sends each line once the previous one is answered; returns the last response. */
async function pipe(agent, lines) {
  const child = spawn("trilogue", ["connect", agent], { stdio: ["pipe", "pipe", "inherit"] });
  let response;
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  for (const line of lines.trimEnd().split("\n")) {
    const { id } = JSON.parse(line);
    child.stdin.write(`${line}\n`);
    do response = JSON.parse((await answers.next()).value);
    while (response.id !== id || response.method);
    assert.equal(response.error, undefined, line);
  }
  child.stdin.end();
  return response.result;
}

/** The code that the page copies, by its name. */
async function copied(browser, thread) {
  const page = await openPage(browser, { path: `#/threads/${thread}?view=timeline&event=2` });
  await page.click("summary >> text=Run again from a program");
  const texts = {};
  for (const name of ["curl", "acp-sdk", "agntcy-acp", "JSON-RPC"]) {
    await page.locator(`pre[aria-label="${name}"]`).hover();
    await page.click(`[aria-label="Copy: ${name}"]`);
    texts[name] = await page.evaluate(() => navigator.clipboard.readText());
  }
  quiet(page);
  return texts;
}

const newest = async (agent) => api(`runs/${(await api(`runs?agent=${agent}&limit=1`)).items[0].id}`);

/** The input of a run. */
async function given(id) {
  const events = (await api(`runs/${id}/events?limit=1000`)).items;
  const value = events.find((event) => event.type === "run.created").input;
  if (value !== undefined) return value;
  const user = new Set(events.filter((event) => event.role === "user").map((event) => event.message_id));
  return events.filter((event) => user.has(event.message_id)).flatMap((event) => event.text ?? event.part ?? []).map((it) => it.content ?? it);
}

await check({
  async messages_are_sent_again_as_they_were(browser) {
    const input = [{ parts: [{ content: TEXT }, { content_type: "image/png", content_encoding: "base64", content: PIXEL }] }];
    const first = await run("echo", input);
    assert.deepEqual(await given(first.id), [TEXT, PIXEL]);
    const code = await copied(browser, first.thread_id);
    const programs = { curl: shell, "acp-sdk": python("communication"), "agntcy-acp": python("connect"), "JSON-RPC": (lines) => pipe("echo", lines) };
    const done = new Set([first.id]);
    for (const [name, execute] of Object.entries(programs)) {
      await execute(code[name]);
      const again = await newest("echo");
      assert.ok(!done.has(again.id), `${name} made no run`);
      done.add(again.id);
      assert.equal(again.status, "completed", name);
      assert.deepEqual(await given(again.id), [TEXT, PIXEL], name);
      assert.equal(again.thread_id === first.thread_id, name === "JSON-RPC", `${name}: the thread`);
    }
  },

  async a_value_is_sent_again_with_its_settings(browser) {
    const first = await run("mailcomposer", { message: "write to bob@example.com about lunch" });
    const code = await copied(browser, first.thread_id);
    for (const [name, execute] of [["curl", shell], ["agntcy-acp", python("connect")]]) {
      const { stdout } = await execute(code[name]);
      assert.match(stdout, /bob@example\.com/, name);
      const again = await newest("mailcomposer");
      assert.notEqual(again.id, first.id);
      assert.deepEqual(await given(again.id), await given(first.id), name);
    }
    const set = await run("coder", "say:hi", { config: { mode: "act" } });
    for (const [name, execute] of [["curl", shell], ["agntcy-acp", python("connect")]]) {
      await execute((await copied(browser, set.thread_id))[name]);
      const again = await newest("coder");
      assert.notEqual(again.id, set.id);
      assert.deepEqual(again.config, { mode: "act" }, name);
    }
  },
});
