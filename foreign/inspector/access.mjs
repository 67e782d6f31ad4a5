// Accessibility: axe's findings, keyboard use, narrow windows, dark and light.

import { assert, check, load, openPage, quiet, run, url } from "./browser.mjs";

const AXE = load.resolve("axe-core/axe.min.js");
const NARROW = { width: 380, height: 760 };

async function serious(page, where) {
  const violations = await page.evaluate(async () => {
    const { violations: all } = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], iframes: false });
    return all.filter((it) => it.impact === "serious" || it.impact === "critical").map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ""}`).join(" | ")}`);
  });
  assert.deepEqual(violations, [], where);
}

async function fits(page, where) {
  const most = page.viewportSize().width;
  const { width, wide } = await page.evaluate(() => ({
    width: document.documentElement.scrollWidth,
    wide: [...document.querySelectorAll("main *")].filter((it) => it.getBoundingClientRect().right > innerWidth + 1 && !it.closest(".scroll, pre, .virtual, .step > summary, .row-title, .row-details, [popover], .sr-only")).slice(0, 3).map((it) => it.outerHTML.slice(0, 120)),
  }));
  assert.ok(width <= most, `${where}: ${width} wide`);
  assert.deepEqual(wide, [], where);
}

/** Every section, with some content. */
async function visit(page, look) {
  const [cited, coded, mail] = [await run("researcher", "bees"), await run("coder", "code"), await run("mailcomposer", { message: "write to bob@example.com about lunch" })];
  const places = [
    ["list", "#/threads", "[data-thread]"],
    ["new", "#/new", ".agent-card"],
    ["sources", `#/threads/${cited.thread_id}`, ".sources"],
    ["tools", `#/threads/${coded.thread_id}`, ".question .difference"],
    ["timeline", `#/threads/${cited.thread_id}?view=timeline&event=30`, ".form-card"],
    ["difference", `#/threads/${cited.thread_id}?beside=${coded.thread_id}&difference=1`, ".differences .added"],
    ["inbox", "#/inbox", `[data-id="${mail.interrupts[0].id}"]`],
    ["agents", "#/agents", ".list-pane .row"],
    ["agent", "#/agents/mailcomposer", "#try-it"],
    ["routes", "#/api", ".list-pane .row"],
    ["route", "#/api/list_thread_events", "#try-it"],
    ["status", "#/status", ".tile"],
  ];
  for (const [name, place, ready] of places) {
    await page.goto(`${url}/${place}`);
    await page.waitForSelector(ready);
    await look(name);
  }
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await look("keys");
  await page.keyboard.press("Escape");
}

const audit = (scheme) => async (browser) => {
  // The page's policy blocks test tools too, so this context bypasses it.
  const page = await openPage(browser, { colorScheme: scheme, bypassCSP: true });
  await page.addScriptTag({ path: AXE });
  await visit(page, (name) => serious(page, `${name}, ${scheme}`));
};

await check({
  nothing_serious_is_found_in_light: audit("light"),
  nothing_serious_is_found_in_dark: audit("dark"),

  async nothing_scrolls_sideways_at_380_pixels(browser) {
    const page = await openPage(browser, { viewport: NARROW });
    await visit(page, (name) => fits(page, name));
    quiet(page);
  },

  async long_texts_push_nothing_out_of_sight(browser) {
    const wide = await run("coder", "wide");
    const titled = await run("echo", `${"a title of many words ".repeat(10)}${"unbroken".repeat(40)}`);
    for (const width of [320, 390, 800, 1280, 1920]) {
      const page = await openPage(browser, { viewport: { width, height: 760 } });
      for (const [name, path, ready] of [
        ["list", "#/threads", "[data-thread]"],
        ["wide", `#/threads/${wide.thread_id}`, ".question[data-open] .difference"],
        ["title", `#/threads/${titled.thread_id}`, ".message[data-role=agent]"],
        ["timeline", `#/threads/${wide.thread_id}?view=timeline`, ".virtual-row"],
        ["inbox", "#/inbox", `[data-id="${wide.interrupts[0].id}"] .difference`],
      ]) {
        await page.goto(`${url}/${path}`);
        await page.waitForSelector(ready);
        await fits(page, `${name} at ${width}`);
        if (!path.startsWith("#/threads/") || (name === "timeline" && width < 900)) continue;
        const composer = await page.locator(".composer-box").boundingBox();
        const isInside = composer && composer.x >= 0 && composer.x + composer.width <= width && composer.y + composer.height <= 760;
        assert.ok(isInside, `${name} at ${width}: ${JSON.stringify(composer)}`);
      }
      quiet(page);
      await page.context().close();
    }
  },

  async a_phone_has_room_for_forms_and_a_way_out(browser) {
    const one = await run("echo", "small");
    const page = await openPage(browser, { viewport: NARROW, path: `#/threads/${one.thread_id}?view=timeline&event=3` });
    await page.waitForSelector(".form-card pre");
    assert.ok((await page.locator(".forms").boundingBox()).height > NARROW.height / 3);
    await page.click(".rosetta [aria-label=Close]");
    await page.waitForSelector(".thread-column .message");
    await page.goto(`${url}/#/status`);
    await page.click("main >> text=Sign out");
    await page.waitForSelector(".sign-in");
    assert.ok(page.complaints.every((it) => /401/.test(it)), page.complaints.join());
  },

  async a_conversation_and_a_question_with_the_keyboard_alone(browser) {
    const page = await openPage(browser);
    await page.waitForSelector(".list-pane");
    await page.keyboard.press("n");
    await page.waitForFunction(() => document.activeElement?.matches(".composer textarea"));
    await page.keyboard.press("Tab");
    await page.keyboard.type("mailc");
    assert.equal(await page.evaluate(() => document.activeElement.value), "mailcomposer");
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.type("write to bob@example.com about lunch");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".question[data-open]");
    await page.keyboard.press("Escape");
    await page.keyboard.press("g");
    await page.keyboard.press("i");
    await page.waitForSelector(".inbox .question[data-open]");
    const count = await page.locator(".inbox .question[data-open]").count();
    for (let step = 0; step < count; step++) await page.keyboard.press("j");
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => document.activeElement?.matches(".question *"));
    for (let step = 0; step < 6 && !(await page.evaluate(() => document.activeElement.matches("input[type=radio]"))); step++) await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".resolution");
    await page.keyboard.press("g");
    await page.keyboard.press("t");
    await page.waitForSelector("[data-thread]");
    await page.keyboard.press("/");
    assert.ok(await page.evaluate(() => document.activeElement.matches("[data-search]")));
    await page.keyboard.type("lunch");
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".thread .resolution");
    await page.keyboard.press("g");
    await page.keyboard.press("s");
    await page.waitForSelector(".tile");
    quiet(page);
  },

  async the_state_of_a_run_is_announced(browser) {
    const slow = await run("coder", "slow:20", { mode: "async" });
    const page = await openPage(browser, { path: `#/threads/${slow.thread_id}` });
    await page.waitForFunction(() => [...document.querySelectorAll("[role=status]")].some((it) => /coder: Done/.test(it.textContent)));
    quiet(page);
  },
});
