// The timeline: 100,000 events in a bounded page, time travel, forks, forms, and a broken connection.

import { api, assert, check, openPage, quiet, run, url } from "./browser.mjs";

const EVENTS = 100_000;
const MAX_ELEMENTS = 2_500;
const MAX_HEAP_BYTES = 160 * 1024 * 1024;

const number = (row) => row.locator(".number").textContent().then(Number);
const lastEvent = async (id) => (await api(`threads/${id}/events?limit=1000`)).items.at(-1).number;

async function timeline(browser, id, query = "") {
  const page = await openPage(browser, { path: `#/threads/${id}?view=timeline${query}` });
  await page.waitForSelector(".virtual-row");
  return page;
}

await check({
  async a_hundred_thousand_events_scroll_in_a_bounded_page(browser) {
    const many = await run("coder", `many:${EVENTS}`);
    const page = await timeline(browser, many.thread_id);
    await page.waitForFunction((most) => Number(document.querySelector(".travel input").max) > most, EVENTS, { timeout: 120_000 });
    const session = await page.context().newCDPSession(page);
    const measure = async () => {
      await session.send("HeapProfiler.collectGarbage");
      return { elements: await page.evaluate(() => document.querySelectorAll("*").length), heap: (await session.send("Runtime.getHeapUsage")).usedSize };
    };
    for (const share of [0, 0.25, 0.5, 0.75, 1, 0.1]) {
      await page.evaluate((it) => {
        const list = document.querySelector(".virtual");
        list.scrollTop = it * (list.scrollHeight - list.clientHeight);
      }, share);
      const from = share * EVENTS * 0.9;
      await page.waitForFunction((least) => [...document.querySelectorAll(".virtual-row")].some((row) => Number(row.querySelector(".number").textContent) >= least && row.querySelector(".summary").textContent.includes("thought")), share === 1 ? EVENTS - 50 : from);
      const { elements, heap } = await measure();
      assert.ok(elements < MAX_ELEMENTS, `${elements} elements`);
      assert.ok(heap < MAX_HEAP_BYTES, `${heap} bytes`);
    }
    await page.fill("[aria-label='Go to event number']", "54321");
    await page.keyboard.press("Enter");
    const chosen = page.locator(".virtual-row[aria-selected=true]");
    await chosen.waitFor();
    assert.equal(await number(chosen), 54_321);
    await page.waitForSelector(".rosetta h3 >> text=Event 54,321");
    // The state at an event in the middle is quick, because it begins at a snapshot.
    const slider = page.locator(".travel input");
    const took = await slider.evaluate(async (input) => {
      const began = performance.now();
      input.value = "50000";
      input.dispatchEvent(new Event("input"));
      await new Promise((done) => {
        const look = () => (document.querySelector("[data-past]") && document.querySelector(".travel output").textContent.startsWith("50,000") ? done() : requestAnimationFrame(look));
        look();
      });
      return performance.now() - began;
    });
    assert.ok(took < 5_000, `${took} ms`);
    quiet(page);
  },

  async filters_a_pause_and_the_keyboard(browser) {
    const done = await run("researcher", "bees");
    const page = await timeline(browser, done.thread_id);
    const last = await lastEvent(done.thread_id);
    await page.waitForFunction((it) => Number(document.querySelector(".travel input").max) === it, last);
    await page.selectOption("[aria-label=Type]", "state.plan");
    await page.waitForFunction(() => [...document.querySelectorAll(".virtual-row .type")].every((it) => it.textContent === "state.plan"));
    assert.match(await page.textContent(".timeline-controls [role=status]"), new RegExp(`^4 of ${last}$`));
    await page.selectOption("[aria-label=Type]", "");
    await page.click(".timeline-controls >> text=Live");
    await run("echo", "more", { thread_id: done.thread_id, create_thread: undefined });
    await page.waitForSelector(".conversation >> text=more");
    assert.equal(Number(await page.getAttribute(".travel input", "max")), last);
    await page.click(".timeline-controls >> text=Paused");
    await page.waitForFunction((it) => Number(document.querySelector(".travel input").max) > it, last);
    await page.focus(".virtual");
    await page.keyboard.press("Home");
    await page.keyboard.press("j");
    assert.equal(await number(page.locator(".virtual-row[aria-selected=true]")), 2);
    await page.waitForSelector(".rosetta h3 >> text=Event 2");
    quiet(page);
  },

  async the_conversation_is_shown_as_of_an_event_and_forked_there(browser) {
    const done = await run("echo", "first");
    await api(`threads/${done.thread_id}`, { values: { step: 1 } }, "PATCH");
    await run("echo", "second", { thread_id: done.thread_id, create_thread: undefined });
    const events = (await api(`threads/${done.thread_id}/events?limit=1000`)).items;
    const end = events.find((event) => event.type === "run.ended").number;
    const page = await timeline(browser, done.thread_id);
    await page.waitForSelector(".conversation >> text=second");
    const travel = (to) => page.locator(".travel input").evaluate((input, value) => {
      input.value = String(value);
      input.dispatchEvent(new Event("input"));
    }, to);
    await page.click("summary >> text=State");
    await page.waitForSelector('.state-as-of pre >> text="step": 1');
    await travel(end);
    await page.waitForSelector(".state-as-of >> text=No agent has set a state.");
    await page.waitForSelector(".conversation >> text=second", { state: "detached" });
    assert.equal(await page.locator(".message").count(), 2);
    await travel(2);
    await page.waitForFunction(() => document.querySelectorAll(".message").length === 0);
    await travel(end);
    await page.waitForFunction(() => document.querySelectorAll(".message").length === 2);
    await page.click("text=Fork here");
    await page.waitForSelector("text=Copied from another thread");
    assert.notEqual(page.url().split("/").pop().split("?")[0], done.thread_id);
    assert.equal(await page.locator(".conversation >> text=second").count(), 0);
    quiet(page);
  },

  async an_event_is_shown_in_every_form(browser) {
    const done = await run("researcher", "bees");
    const events = (await api(`threads/${done.thread_id}/events?limit=1000`)).items;
    const cited = events.find((event) => event.part?.metadata?.kind === "citation").number;
    const page = await timeline(browser, done.thread_id, `&event=${cited}`);
    await page.waitForSelector(".form-card >> nth=3");
    const titles = await page.locator(".form-card h4").allTextContents();
    for (const name of ["Trilogue", "Agent Client Protocol", "Agent Communication Protocol", "Agent Connect Protocol"]) assert.ok(titles.includes(name), titles.join());
    await page.waitForSelector(".fidelity");
    await page.hover(".form-card .bare >> nth=0");
    await page.click(".form-card .copy >> nth=0");
    const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    assert.equal(copied.number, cited);
    quiet(page);
  },

  async a_broken_connection_loses_and_doubles_nothing(browser) {
    const slow = await run("coder", "slow:150", { mode: "async" });
    const page = await openPage(browser, { path: `#/threads/${slow.thread_id}` });
    await page.waitForSelector(".text >> text=word5");
    await page.click(".connection");
    for (let breaks = 1; breaks <= 3; breaks++) {
      await page.click("text=Break the connection");
      await page.waitForFunction((count) => [...document.querySelectorAll(".connection-card dd")][1]?.textContent === String(count + 1), breaks);
    }
    await page.waitForSelector("text=No hole, no double.");
    await page.waitForSelector('.thread[data-state="completed"]');
    // The server renders the last words, and the page shows them when its response arrives.
    await page.waitForSelector(".text >> text=word150");
    const words = await page.textContent(".message[data-role=agent] .text");
    assert.deepEqual(words.trim().split(/\s+/), Array.from({ length: 150 }, (_, place) => `word${place + 1}`));
    assert.equal(new URL(page.url()).origin, url);
    quiet(page);
  },

  async a_hidden_page_gives_its_connection_back_and_misses_nothing(browser) {
    const slow = await run("coder", "slow:150", { mode: "async" });
    const page = await openPage(browser, { path: `#/threads/${slow.thread_id}` });
    await page.clock.install();
    const [stream] = await Promise.all([page.waitForRequest((it) => it.url().endsWith(`/threads/${slow.thread_id}/events`)), page.reload()]);
    await page.waitForSelector(".text >> text=word5");
    const show = (hidden) => page.evaluate((it) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => it });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    await show(true);
    await Promise.all([page.waitForEvent("requestfailed", (it) => it === stream), page.clock.fastForward(61_000)]);
    await show(false);
    await page.waitForSelector(".text >> text=word150");
    const words = await page.textContent(".message[data-role=agent] .text");
    assert.deepEqual(words.trim().split(/\s+/), Array.from({ length: 150 }, (_, place) => `word${place + 1}`));
    quiet(page);
  },
});
