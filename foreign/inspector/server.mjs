// The pages about the server itself: its agents in every protocol, their processes, and every route.

import { api, assert, check, openPage, quiet, run, url } from "./browser.mjs";

const lastResponse = async (page) => JSON.parse(await page.textContent("[aria-label=Response]"));

await check({
  async an_agent_is_shown_as_each_protocol_shows_it(browser) {
    const page = await openPage(browser, { path: "#/agents/mailcomposer" });
    await page.click("summary >> text=As each protocol shows it");
    const manifest = page.locator("pre[aria-label='Agent Communication Protocol: manifest']");
    const own = await fetch(`${url}/communication/agents/mailcomposer`).then((it) => it.status);
    assert.equal(own, 401, "the protocol's own route wants a token");
    assert.equal(JSON.parse(await manifest.textContent()).name, "mailcomposer");
    const descriptor = JSON.parse(await page.textContent("pre[aria-label='Agent Connect Protocol: descriptor']"));
    assert.equal(descriptor.metadata.ref.name, "org.agntcy.mailcomposer");
    assert.ok(JSON.parse(await page.textContent("pre[aria-label='Agent Connect Protocol: capabilities']")).threads);
    quiet(page);
  },

  async a_process_shows_its_standard_error_without_secrets(browser) {
    const said = await run("coder", "warn:the paper is nearly empty");
    const page = await openPage(browser, { path: "#/agents/coder" });
    await page.click("[aria-label=Processes] button >> nth=0");
    await page.waitForSelector("dialog[open] pre >> text=the paper is nearly empty");
    assert.doesNotMatch(await page.textContent("dialog[open]"), /a-secret-of-the-agent/);
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    await page.goto(`${url}/#/status`);
    await page.waitForSelector("[aria-label=Processes] button");
    assert.equal((await api(`runs/${said.id}`)).status, "completed");
    quiet(page);
  },

  async every_route_can_be_tried(browser) {
    const page = await openPage(browser, { path: "#/api", allow: [/404/] });
    const document = await api("openapi.json");
    const operations = Object.values(document.paths).flatMap((item) => Object.values(item).map((it) => it.operationId));
    await page.waitForSelector(".list-pane .row");
    assert.equal(await page.locator(".list-pane .row").count(), operations.length);
    for (const id of operations) {
      await page.goto(`${url}/#/api/${id}`);
      await page.waitForSelector(`article[aria-label="${id}"] >> text=Send`);
    }
    await page.fill("[data-search]", "post /api/v1/threads");
    assert.ok((await page.locator(".list-pane .row").count()) < 4);
    await page.click("[href='#/api/create_thread']");
    await page.fill("article textarea", JSON.stringify({ metadata: { topic: "o'clock" } }));
    await page.click("form >> text=Send");
    await page.waitForSelector("strong >> text=201");
    const made = await lastResponse(page);
    assert.equal((await api(`threads/${made.id}`)).metadata.topic, "o'clock");
    await page.click("summary >> text=As curl");
    assert.match(await page.textContent("pre[aria-label=curl]"), /-X POST .*\n.*\/api\/v1\/threads' .*\n.*o'\\''clock/);
    // A refusal of the server is shown as a response too.
    await page.goto(`${url}/#/api/get_thread`);
    await page.fill("article[aria-label=get_thread] input", "nowhere/../x");
    await page.click("form >> text=Send");
    await page.waitForSelector("strong >> text=404");
    assert.equal((await lastResponse(page)).code, "thread_not_found");
    // If a value is missing, the form names it and sends nothing.
    await page.goto(`${url}/#/api/get_run`);
    await page.click("article[aria-label=get_run] form >> text=Send");
    await page.waitForSelector(".field-error >> text=Fill in this field.");
    quiet(page);
  },

  async a_stream_is_read_until_it_is_stopped(browser) {
    const page = await openPage(browser, { path: "#/api/watch_changes" });
    await page.click("form >> text=Send");
    await page.waitForSelector("text=text/event-stream");
    const made = await run("echo", "seen by the stream");
    await page.waitForSelector(`[aria-label=Response] >> text=${made.thread_id}`);
    await page.click("form >> text=Stop");
    await page.waitForSelector("form >> text=Stop", { state: "hidden" });
    quiet(page);
  },
});
