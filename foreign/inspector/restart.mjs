// The server is killed in the middle of an answer and comes back: the answer and the page continue without a reload.
//
// Prints `kill`, and waits for a line once the server runs again.

import { createInterface } from "node:readline";
import { api, assert, check, openPage, quiet, run } from "./browser.mjs";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

await check({
  async the_page_survives_the_server(browser) {
    const slow = await run("coder", "slow:150", { mode: "async" });
    const page = await openPage(browser, { path: `#/threads/${slow.thread_id}`, allow: [/ERR_|502|503/] });
    await page.waitForSelector(".text >> text=word20");
    console.log("kill");
    await lines.next();
    // The agent has worked on, and its run ends as without a restart: the page shows that without a reload.
    await page.waitForSelector('.thread[data-state="completed"]');
    await page.fill(".composer textarea:visible", "say:I am back");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".message[data-role=agent] >> text=I am back");
    await page.click(".connection");
    const facts = await page.locator(".connection-card dd").allTextContents();
    const events = await api(`threads/${slow.thread_id}/events?limit=1000`);
    await page.waitForFunction((last) => Number(document.querySelector(".connection-card dd").textContent) >= last, Math.min(1000, events.items.at(-1).number));
    assert.deepEqual(facts.slice(2), ["0", "0"], "missing numbers and doubles");
    const words = (await page.locator(".message[data-role=agent] .text").first().textContent()).trim().split(/\s+/);
    assert.deepEqual(words, words.map((_, place) => `word${place + 1}`), "every word once");
    // The list is live again, too.
    const other = await run("echo", `after ${Date.now()}`);
    await page.waitForSelector(`[data-thread="${other.thread_id}"]`);
    quiet(page);
  },
});
process.stdin.destroy();
