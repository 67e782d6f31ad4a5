// Two servers that share a store: the page of one shows both.

import { assert, check, openPage, quiet, run } from "./browser.mjs";

await check({
  async the_status_shows_the_servers_and_what_they_do_not_agree_about(browser) {
    const page = await openPage(browser, { path: "#/status" });
    const servers = page.locator("[aria-label=Servers] tbody tr");
    await servers.nth(1).waitFor();
    const cells = await servers.evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
    assert.deepEqual(cells, [["north", "this one", "0", "echo, researcher"], ["south", "alive", "0", "echo"]]);
    await page.waitForSelector("[aria-label=Warnings] >> text=Servers differ in the agent researcher: on north, missing on south");
    quiet(page);
  },

  async a_thread_names_the_server_that_owns_it(browser) {
    const made = await run("echo", "who has it?");
    const page = await openPage(browser, { path: `#/threads/${made.thread_id}` });
    await page.waitForSelector(".thread .state >> text=north");
    await page.waitForSelector(`[data-thread="${made.thread_id}"] >> text=north`);
    quiet(page);
  },
});
