// The server returns to an older store: the page has events that the server lacks, and offers to reload.
//
// Prints `keep` and `rewind`, and waits for a line after each, once the server runs again.

import { createInterface } from "node:readline";
import { assert, check, openPage, quiet, run } from "./browser.mjs";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function order(word) {
  console.log(word);
  await lines.next();
}

await check({
  async a_page_that_knows_more_offers_to_reload(browser) {
    const first = await run("echo", "before the backup");
    const more = { thread_id: first.thread_id };
    const page = await openPage(browser, { path: `#/threads/${first.thread_id}`, allow: [/ERR_|400|502|503/] });
    await page.waitForSelector(".message[data-role=agent] >> text=before the backup");
    await order("keep");
    await run("echo", "after the backup", more);
    await page.waitForSelector(".message[data-role=agent] >> text=after the backup");
    await order("rewind");
    const notice = page.locator(".thread .failure");
    await notice.getByRole("button", { name: "Reload" }).waitFor();
    assert.match(await notice.textContent(), /shows events that the server does not have/);
    await notice.getByRole("button", { name: "Reload" }).click();
    await page.waitForSelector(".message[data-role=agent] >> text=before the backup");
    assert.equal(await page.getByText("after the backup").count(), 0, "what the server does not have");
    await run("echo", "live again", more);
    await page.waitForSelector(".message[data-role=agent] >> text=live again");
    quiet(page);
  },
});
process.stdin.destroy();
