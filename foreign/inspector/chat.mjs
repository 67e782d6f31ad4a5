// Signing in, and everything that a conversation shows.

import { allowSignIn, api, assert, check, openPage, quiet, run, signInLink, url } from "./browser.mjs";

const newThread = async (page, agent, text) => {
  await page.goto(`${url}/#/new?agent=${agent}`);
  await page.fill(".composer textarea:visible", text);
  await page.keyboard.press("Enter");
};
const isDone = (page, state = "completed") => page.waitForSelector(`.thread[data-state="${state}"]`);

await check({
  async signing_in_takes_the_code_out_of_the_address(browser) {
    const page = await openPage(browser, { signIn: false, allow: [/401/] });
    await page.goto(`${url}/`);
    await page.waitForSelector(".sign-in");
    assert.match(await page.textContent(".sign-in"), /trilogue ui/);
    const link = await signInLink();
    await page.goto(link);
    await page.reload();
    await allowSignIn(page);
    assert.ok(!page.url().includes("sign-in"), page.url());
    const kept = await page.evaluate(() => [document.cookie, Object.keys(localStorage), sessionStorage.length]);
    assert.deepEqual(kept, ["", ["trilogue-page"], 0], "scripts see half of the session");
    // The code works once.
    const other = await openPage(browser, { signIn: false, allow: [/401/] });
    await other.goto(link);
    await other.waitForSelector(".sign-in .failure");
    await page.click("text=Sign out");
    await page.waitForSelector(".sign-in");
  },

  async an_answer_streams_with_sources_steps_a_plan_and_an_artifact(browser) {
    const page = await openPage(browser);
    await newThread(page, "researcher", "bees");
    await page.waitForSelector("[data-streams] .text");
    await isDone(page);
    await page.waitForSelector(".mark >> nth=2");
    assert.equal(await page.locator(".mark").count(), 3);
    assert.equal(await page.locator(".sources li").count(), 3);
    await page.click(".mark >> nth=1");
    const card = page.locator(".citation");
    assert.match(await card.textContent(), /bees: a survey/);
    assert.equal(await card.locator("blockquote").textContent(), "A survey of 107 practitioners calls bees well understood.");
    assert.equal(await page.evaluate(() => [...CSS.highlights.get("cited")][0].toString().trim()), "A survey of 107 practitioners calls bees well understood.");
    await page.keyboard.press("Escape");
    await page.waitForSelector(".citation", { state: "detached" });
    assert.equal(await page.locator(".plan li[data-state=completed]").count(), 3);
    assert.equal(await page.locator("[data-kind=step]").count(), 4);
    await page.click("[data-kind=step] summary >> nth=0");
    await page.locator("[data-kind=step] pre").getByText('"query": "bees"').waitFor();
    await page.waitForFunction(() => document.querySelector(".media img")?.naturalWidth > 0);
    await page.waitForSelector(".artifact h1");
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Download")]);
    assert.equal(download.suggestedFilename(), "report.md");
    quiet(page);
  },

  async a_source_without_a_range_is_marked_at_its_part(browser) {
    const cited = (title, indexes = {}) => ({ kind: "citation", title, url: `https://example.com/${title}`, ...indexes });
    const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const parts = [
      { content_type: "text/plain", content: "Before. " },
      { content_type: "text/plain", content: "The whole part. ", metadata: cited("part") },
      { content_type: "text/plain", content: "A start only. ", metadata: cited("start", { start_index: 24 }) },
      { content_type: "image/png", content: pixel, content_encoding: "base64", metadata: cited("picture") },
      { content_type: "text/markdown", name: "notes.md", content: "Noted", metadata: cited("artifact") },
      { content_type: "text/plain", content: "The end.", metadata: cited("beyond", { start_index: 5000, end_index: 6000 }) },
      { content_type: "text/plain", metadata: cited("position") },
    ];
    const { thread_id } = await run("echo", [{ role: "user", parts }]);
    const page = await openPage(browser, { path: `#/threads/${thread_id}` });
    const message = page.locator(".message[data-role=user]");
    await message.locator(".mark >> nth=5").waitFor();
    assert.equal(await message.locator(".sources li").count(), 6);
    // The marks have the same order in the page as their positions.
    const places = await message.evaluate((it) => [...it.querySelectorAll(".mark")].map((mark) => [mark.getAttribute("aria-label"), mark.closest(".part") ? "part" : mark.previousSibling?.textContent.trim().split(" ").at(-1) ?? ""]));
    assert.deepEqual(places, [
      ["Source 1: part", "part."],
      ["Source 2: start", ""],
      ["Source 3: picture", "part"],
      ["Source 4: artifact", "part"],
      ["Source 5: beyond", "end."],
      ["Source 6: position", ""],
    ]);
    await message.locator("[aria-label='Source 1: part']").click();
    assert.equal(await page.locator(".citation blockquote").textContent(), "The whole part.");
    quiet(page);
  },

  async thoughts_with_ids_of_their_own_are_separate(browser) {
    const { thread_id } = await run("coder", "muse");
    const page = await openPage(browser, { path: `#/threads/${thread_id}` });
    await page.waitForSelector(".text >> text=I have thought.");
    const thoughts = await page.locator("[data-kind=thought] summary").allTextContents();
    assert.deepEqual(thoughts.map((text) => text.replace(/^Thought\s+/, "")), ["One thought.", "Another thought."]);
    quiet(page);
  },

  async the_input_of_an_agent_with_a_schema_is_shown_once(browser) {
    const text = "write to bob@example.com about lunch";
    for (const input of [text, { message: text }]) {
      const { thread_id } = await run("mailcomposer", input);
      const page = await openPage(browser, { path: `#/threads/${thread_id}` });
      await page.waitForSelector(".question[data-open]");
      assert.equal(await page.locator(`.message[data-role=user] >> text=${text}`).count(), 1, JSON.stringify(input));
      quiet(page);
    }
  },

  async tools_show_what_they_changed_and_ask_first(browser) {
    const page = await openPage(browser, { viewport: { width: 1280, height: 600 } });
    await newThread(page, "coder", "code");
    await page.waitForSelector(".question[data-open] .difference .added");
    // Content that is drawn late moves nothing out of view.
    await page.waitForFunction(() => {
      const { scrollTop, scrollHeight, clientHeight } = document.querySelector(".conversation");
      return scrollTop > 0 && scrollHeight - scrollTop - clientHeight < 2;
    });
    assert.match(await page.textContent(".question .difference .added"), /Hello, \$\{name\}/);
    await page.click(".question >> text=Allow once");
    await isDone(page);
    assert.match(await page.textContent(".question .resolution"), /Allow once/);
    await page.click("summary >> text=npm test");
    await page.waitForSelector("pre.terminal");
    const terminals = await page.locator("pre.terminal").allTextContents();
    assert.ok(terminals.some((text) => text === "$ npm test") && terminals.some((text) => text.startsWith("✓ greets")), terminals.join("|"));
    await page.waitForSelector(".text strong >> text=name");
    await page.waitForSelector(".code-head >> text=js");
    quiet(page);
  },

  async what_is_for_the_agent_alone_is_folded(browser) {
    const page = await openPage(browser);
    await newThread(page, "coder", "aside");
    await page.waitForSelector(".text >> text=for everybody");
    assert.equal(await page.locator(".message >> text=for the assistant").count(), 0);
    await page.waitForSelector("summary >> text=For the agent only");
    quiet(page);
  },

  async a_run_is_stopped_and_a_failure_is_explained(browser) {
    const page = await openPage(browser);
    await newThread(page, "coder", "slow:10000");
    await page.waitForSelector("[data-streams] .text >> text=word3");
    await page.click("[aria-label='Stop the agent']");
    await isDone(page, "cancelled");
    await page.fill(".composer textarea:visible", "fail:the disk is gone");
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector(".failure code");
    assert.match(await page.textContent(".failure"), /the disk is gone/);
    quiet(page);
  },

  async files_are_attached_by_button_drop_and_paste(browser) {
    const page = await openPage(browser);
    await page.goto(`${url}/#/new?agent=echo`);
    await page.waitForSelector(".composer-row");
    await page.setInputFiles("input[type=file]", [{ name: "note.md", mimeType: "text/markdown", buffer: Buffer.from(`# Noted\n\n${"words ".repeat(12_000)}`) }]);
    const carry = (type, name, mime, bytes) => page.evaluate(([event, file, kind, content]) => {
      const data = new DataTransfer();
      data.items.add(new File([Uint8Array.from(content)], file, { type: kind }));
      const target = document.querySelector(".composer textarea");
      target.dispatchEvent(event === "drop" ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }) : new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
    }, [type, name, mime, [...bytes]]);
    const pixel = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
    await carry("drop", "a.pdf", "application/pdf", Buffer.from("%PDF-1.4"));
    await carry("paste", "pixel.png", "image/png", pixel);
    await carry("drop", "a.wav", "audio/wav", Buffer.from("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=", "base64"));
    assert.equal(await page.locator(".attachments li").count(), 4);
    await page.fill(".composer textarea", "See these");
    await page.click("[aria-label=Send]");
    await isDone(page);
    await page.waitForFunction(() => document.querySelectorAll(".media img").length === 2);
    // The file is too large for an event: the page fetches it from the server.
    await page.waitForFunction(() => [...document.querySelectorAll(".artifact h1")].filter((it) => it.textContent === "Noted").length === 2);
    await page.waitForFunction(() => [...document.querySelectorAll("audio")].filter((it) => it.readyState > 0).length === 2);
    assert.ok((await page.locator("[aria-label='Download a.pdf']").count()) === 2);
    // A file that is too large is refused, with the limit.
    await page.evaluate(() => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(21 * 1024 * 1024)], "big.bin"));
      document.querySelector(".composer textarea").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    });
    assert.match(await page.textContent(".composer .failure"), /20\.0 MiB/);
    quiet(page);
  },

  async settings_and_forms_come_from_the_agents_schemas(browser) {
    const page = await openPage(browser);
    await run("coder", "say:hi");
    await page.goto(`${url}/#/new?agent=coder`);
    await page.reload();
    await page.click("[aria-label='Settings of the agent']");
    await page.selectOption(".settings select", { label: "Act" });
    await page.fill(".composer textarea:visible", "say:done");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".text >> text=done");
    const [last] = (await api("runs?limit=1")).items;
    assert.deepEqual(last.config, { mode: "act" });
    await page.goto(`${url}/#/agents/mailcomposer`);
    await page.fill("form input", "write to bob@example.com about lunch");
    await page.click("form >> text=Run");
    await page.waitForSelector("text=Open the thread");
    quiet(page);
  },

  async commands_of_the_agent_are_completed(browser) {
    await run("coder", "say:hi");
    const page = await openPage(browser, { path: "#/new?agent=coder" });
    const names = () => page.locator(".commands [role=option] strong").allTextContents();
    await page.click(".composer textarea");
    await page.keyboard.press("/");
    await page.waitForSelector(".commands [role=option] >> nth=2");
    assert.deepEqual(await names(), ["/review", "/report", "/test"]);
    await page.keyboard.type("re");
    assert.deepEqual(await names(), ["/review", "/report"]);
    await page.keyboard.press("ArrowDown");
    assert.match(await page.textContent(`#${await page.getAttribute(".composer textarea", "aria-activedescendant")}`), /\/report/);
    // Enter selects the command, and the next Enter sends it.
    await page.keyboard.press("Enter");
    assert.equal(await page.inputValue(".composer textarea"), "/report ");
    await page.keyboard.type("to Ada");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".text >> text=You said: /report to Ada");
    await page.keyboard.press("/");
    await page.keyboard.press("Escape");
    await page.waitForSelector(".commands", { state: "hidden" });
    quiet(page);
  },

  async the_status_shows_processes_runs_errors_and_latencies(browser) {
    await run("coder", "fail:no more paper");
    const page = await openPage(browser, { path: "#/status" });
    await page.waitForSelector(".tile");
    await page.waitForSelector("[aria-label=Processes] td >> text=coder");
    await page.waitForSelector("[aria-label='Last errors'] >> text=no more paper");
    await page.waitForSelector(".histogram svg");
    assert.ok(await page.locator(".histogram rect").evaluateAll((bars) => bars.some((bar) => Number(bar.getAttribute("height")) > 0)));
    assert.match(await page.getAttribute(".histogram svg >> nth=0", "aria-label"), /half within .+, 99 of 100 within/);
    quiet(page);
  },

  async two_threads_stand_side_by_side_and_the_list_is_searched(browser) {
    const apples = `apples${Date.now()}`;
    const [one, two] = [await run("echo", apples), await run("echo", "pears")];
    const page = await openPage(browser, { path: `#/threads/${one.thread_id}` });
    await page.click("text=Side by side");
    await page.click(`[data-thread="${two.thread_id}"]`);
    await page.waitForFunction(() => document.querySelectorAll(".thread").length === 2);
    await page.waitForSelector(".thread >> nth=1 >> text=pears");
    await page.fill("[data-search]", apples.toUpperCase());
    await page.waitForFunction(() => document.querySelectorAll("[data-thread]").length === 1);
    await page.fill("[data-search]", "");
    await page.selectOption("select[aria-label=State]", "failed");
    const states = await page.locator("[data-thread] .dot").evaluateAll((dots) => dots.map((dot) => dot.dataset.status));
    assert.ok(states.every((state) => state === "failed"), states.join());
    quiet(page);
  },

  async two_threads_and_two_runs_are_compared(browser) {
    const [one, two] = [await run("coder", "say:same\nold"), await run("coder", "say:same\nnew")];
    const page = await openPage(browser, { path: `#/threads/${one.thread_id}` });
    await page.click("text=Side by side");
    await page.click(`[data-thread="${two.thread_id}"]`);
    await page.click("text=Difference");
    const lines = async (kind, last) => {
      await page.waitForSelector(`.differences .${kind} >> text=${last}`);
      return page.locator(`.differences .${kind} code`).allTextContents();
    };
    assert.deepEqual(await lines("removed", "old"), ["old", "old"]);
    assert.deepEqual(await lines("added", "new"), ["new", "new"]);
    assert.ok((await page.locator(".differences .same code").allTextContents()).includes("same"));
    // A later run appears in the difference without a reload.
    await run("coder", "say:later", { thread_id: two.thread_id, create_thread: undefined });
    await lines("added", "later");
    // Any run of both threads can be a side.
    const second = (await api(`runs?thread_id=${two.thread_id}`)).items[0];
    await page.selectOption("[aria-label=Left]", `${two.thread_id} ${two.id}`);
    await page.selectOption("[aria-label=Right]", `${two.thread_id} ${second.id}`);
    await page.waitForFunction(() => document.querySelectorAll(".differences .removed").length === 4);
    await page.selectOption("[aria-label=Right]", `${two.thread_id} ${two.id}`);
    await page.waitForSelector("text=Both say the same.");
    await page.click("text=Show the threads");
    await page.waitForSelector(".thread >> nth=1 >> text=later");
    await page.click("[aria-label='Close this thread']");
    // One thread compared with itself: its last two runs.
    await page.goto(`${url}/#/threads/${two.thread_id}?beside=${two.thread_id}&difference=1`);
    assert.deepEqual((await lines("added", "later")).at(-1), "later");
    assert.ok((await lines("removed", "new")).includes("new"));
    quiet(page);
  },
});
