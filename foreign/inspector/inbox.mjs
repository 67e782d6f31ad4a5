// Questions of every kind: answered on this page, in another client, and at the same time.

import { api, assert, check, openPage, quiet, run, url } from "./browser.mjs";

const open = "[data-open]";
const mail = () => run("mailcomposer", { message: "write to bob@example.com about lunch" });

async function inbox(browser) {
  const page = await openPage(browser, { path: "#/inbox", allow: [/409/] });
  await page.waitForSelector("h1 >> text=Inbox");
  return page;
}
const card = (page, run) => page.locator(`.question[data-id="${run.interrupts[0].id}"]`);

const decide = (question, word) => question.getByRole("group", { name: "Approval Decision" }).getByLabel(word).check();

await check({
  async a_form_from_its_schema_is_answered(browser) {
    const asked = await mail();
    const page = await inbox(browser);
    const question = card(page, asked);
    await question.waitFor();
    assert.equal(await page.locator(".answered").count(), 0, "nothing is answered yet");
    await decide(question, "Yes");
    await question.getByLabel("Approval Reason").fill("fine");
    await question.getByText("Send answer").click();
    await question.locator(".resolution").waitFor();
    const answered = await api(`interrupts/${asked.interrupts[0].id}`);
    assert.deepEqual(answered.resolution.answer.value, { approved: true, reason: "fine" });
    // It moves to the answered questions, with the person and the time.
    await question.waitFor({ state: "detached" });
    await page.waitForSelector(".answered >> text=by owner");
    quiet(page);
  },

  async a_question_that_comes_and_is_answered_elsewhere_is_seen_live(browser) {
    const page = await inbox(browser);
    const asked = await mail();
    const question = card(page, asked);
    await question.waitFor();
    await api(`interrupts/${asked.interrupts[0].id}/answer`, { value: { approved: false } });
    await question.locator(".resolution >> text=owner").waitFor();
    await question.waitFor({ state: "detached" });
    quiet(page);
  },

  async an_untouched_form_is_not_an_answer(browser) {
    const asked = await mail();
    const page = await inbox(browser);
    const question = card(page, asked);
    await question.getByText("Send answer").click();
    await question.locator(".field-error >> text=Choose yes or no.").waitFor();
    assert.equal((await api(`interrupts/${asked.interrupts[0].id}`)).resolution, undefined);
    await decide(question, "No");
    await question.getByText("Send answer").click();
    await question.locator(".resolution").waitFor();
    assert.deepEqual((await api(`interrupts/${asked.interrupts[0].id}`)).resolution.answer.value, { approved: false });
    quiet(page);
  },

  async a_default_is_a_suggestion_in_an_answer(browser) {
    const page = await openPage(browser);
    const schema = {
      type: "object",
      required: ["name", "size", "yes", "colour"],
      properties: {
        name: { type: "string", default: "Ada", title: "Name" },
        size: { type: "integer", default: 3, title: "Size" },
        yes: { type: "boolean", default: true, title: "Yes" },
        no: { type: "boolean", default: false, title: "No" },
        colour: { enum: ["red", "blue"], default: "blue", title: "Colour" },
        tags: { type: "array", items: { enum: ["a", "b"] }, default: ["b"], title: "Tags" },
        lines: { type: "array", items: { type: "string" }, default: ["one", "two"], title: "Lines" },
        place: { type: "object", properties: { city: { type: "string", default: "Rome", title: "City" } }, title: "Place" },
        any: { default: { a: 1 }, title: "Anything" },
      },
    };
    const assets = await page.getAttribute("script[src]", "src");
    await page.evaluate(async ([folder, it]) => {
      const { schemaForm } = await import(`${folder}/chat/schema_form.js`);
      window.form = schemaForm(it, { isAnswer: true });
      document.querySelector("main").replaceChildren(window.form.element);
    }, [assets.replace("/main.js", ""), schema]);
    const read = () => page.evaluate(() => window.form.read());
    assert.equal(await read(), undefined, "nothing is touched");
    const take = (name) => page.locator(".field", { hasText: name }).getByText("Use it").last().click();
    for (const name of ["Name", "Size", "Colour"]) await take(name);
    assert.equal(await read(), undefined, "a decision is missing");
    await page.getByRole("group", { name: "Yes" }).getByText("Use it").click();
    assert.deepEqual(await read(), { value: { name: "Ada", size: 3, yes: true, colour: "blue", place: {} } });
    for (const button of await page.getByText("Use it").all()) await button.click();
    assert.deepEqual(await read(), { value: { name: "Ada", size: 3, yes: true, no: false, colour: "blue", tags: ["b"], lines: ["one", "two"], place: { city: "Rome" }, any: { a: 1 } } });
    quiet(page);
  },

  async a_text_that_was_not_sent_is_kept_when_the_question_is_answered_elsewhere(browser) {
    const asked = await mail();
    const page = await inbox(browser);
    const question = card(page, asked);
    await question.getByLabel("Approval Reason").fill("because of Friday");
    await api(`interrupts/${asked.interrupts[0].id}/answer`, { value: { approved: false } });
    await question.locator(".notice >> text=Answered elsewhere by owner").waitFor();
    assert.match(await question.locator(".notice").textContent(), /because of Friday/);
    await question.getByText("Dismiss").click();
    await question.waitFor({ state: "detached" });
    quiet(page);
  },

  async two_pages_answer_one_question(browser) {
    const asked = await mail();
    const [first, second] = [await inbox(browser), await inbox(browser)];
    // The second page receives no updates until it has answered.
    await decide(card(second, asked), "Yes");
    await decide(card(first, asked), "No");
    await second.route("**/api/v1/{changes,interrupts?**}", (route) => route.abort());
    await card(first, asked).getByText("Send answer").click();
    await card(first, asked).locator(".resolution").waitFor();
    await card(second, asked).evaluate((element) => element.querySelector("form button").click());
    await card(second, asked).locator("text=Answered elsewhere by owner").waitFor();
    quiet(first);
  },

  async a_permission_says_what_it_is_about(browser) {
    const page = await inbox(browser);
    const asked = await run("coder", "code");
    const question = card(page, asked);
    await question.locator(".difference .added").waitFor();
    assert.deepEqual(await question.locator(".options button").evaluateAll((all) => all.map((it) => it.dataset.effect)), ["allow", "allow", "reject"]);
    await question.getByText("Reject").click();
    await question.locator(".resolution >> text=Reject").waitFor();
    const ended = await api(`runs/${asked.id}/wait?timeout_seconds=20`);
    assert.equal(ended.status, "completed");
    await page.goto(`${url}/#/threads/${asked.thread_id}`);
    await page.waitForSelector("text=I left the file as it was.");
    quiet(page);
  },

  async nothing_is_approved_before_all_of_it_was_shown(browser) {
    const page = await inbox(browser);
    const asked = await run("coder", "long");
    const question = card(page, asked);
    await question.getByText("characters are hidden").waitFor();
    const command = question.getByRole("region", { name: "Command" });
    assert.match(await command.textContent(), /^\$ echo BEGIN;.*echo END$/s);
    assert.doesNotMatch(await question.textContent(), /HIDDEN/);
    const [allow, reject] = [question.getByText("Allow once"), question.getByText("Reject")];
    for (const name of ["Allow once", "Always allow"]) assert.equal(await question.getByText(name).isDisabled(), true, name);
    assert.equal(await reject.isDisabled(), false);
    await question.getByText("Show all of it before you agree.").waitFor();
    // A click by a script has no effect.
    const sent = await allow.evaluate((button) => {
      const [calls, send] = [[], window.fetch];
      window.fetch = (...call) => (calls.push(String(call[0])), send(...call));
      button.disabled = false;
      button.click();
      window.fetch = send;
      return calls;
    });
    assert.deepEqual(sent, []);
    assert.equal((await api(`interrupts/${asked.interrupts[0].id}`)).resolution, undefined);
    await question.getByText(/^Show all .* characters$/).click();
    assert.match(await command.textContent(), /rm -rf HIDDENU\+202E;/);
    const [shown, below] = [await command.boundingBox(), await allow.boundingBox()];
    assert.ok(shown.y + shown.height <= below.y, "the answers are below all of it");
    assert.equal(await command.evaluate((it) => it.scrollHeight > it.clientHeight + 1 || it.scrollWidth > it.clientWidth + 1), false, "nothing is scrolled out of sight");
    await allow.click();
    await question.locator(".resolution >> text=Allow once").waitFor();
    quiet(page);
  },

  async a_long_change_and_a_long_text_of_a_question_are_shown_whole(browser) {
    const page = await openPage(browser, { path: "#/inbox" });
    await page.waitForSelector(".empty");
    const assets = await page.getAttribute("script[src]", "src");
    await page.evaluate(async (folder) => {
      const { QuestionView } = await import(`${folder}/chat/question.js`);
      const lines = Array.from({ length: 5000 }, (_, number) => `line ${number}\n`).join("");
      const text = "a".repeat(250_000);
      const content = [
        { type: "diff", path: "/etc/x", oldText: "", newText: lines },
        { type: "content", content: { type: "resource", resource: { uri: "file:///y", mimeType: "text/plain", text } } },
      ];
      const options = [{ id: "a", name: "Allow", effect: "allow" }];
      const payload = { toolCall: { kind: "edit", title: "Change", content } };
      document.body.append(new QuestionView({ id: "x", kind: "permission", payload, prompt: [], options }).element);
    }, assets.replace("/main.js", ""));
    const question = page.locator(".question[data-id=x]");
    const allow = question.getByRole("button", { name: "Allow" });
    await question.locator(".difference-box:not([data-hidden])").waitFor();
    assert.equal(await question.locator(".difference .added").count(), 5000);
    assert.equal(await allow.isDisabled(), true, "the text was not shown yet");
    await question.getByRole("button", { name: /^Show .*KiB$/ }).click();
    await question.getByText(/^Show all .* characters$/).click();
    assert.equal(await question.locator("[data-hidden]").count(), 0);
    assert.equal(await allow.isDisabled(), false);
    quiet(page);
  },

  async what_is_long_can_be_rejected_unread(browser) {
    const page = await inbox(browser);
    const asked = await run("coder", "long");
    await card(page, asked).getByText("Reject").click();
    await card(page, asked).locator(".resolution >> text=Reject").waitFor();
    quiet(page);
  },

  async the_data_of_a_question_is_shown_beside_its_words(browser) {
    const page = await openPage(browser, { path: "#/inbox" });
    await page.waitForSelector(".empty");
    const assets = await page.getAttribute("script[src]", "src");
    const shown = await page.evaluate(async (folder) => {
      const { QuestionView } = await import(`${folder}/chat/question.js`);
      const options = [{ id: "a", name: "Allow", effect: "allow" }];
      const prompt = [{ content_type: "text/plain", content: "May I list the files?" }];
      const call = { kind: "execute", rawInput: { command: "ls", args: [], cwd: "/etc" }, locations: [{ path: "/etc/x", line: 3 }] };
      return [{ command: "rm -rf /" }, { toolCall: call }].map((payload) => new QuestionView({ id: "x", kind: "permission", payload, prompt, options }).body.textContent);
    }, assets.replace("/main.js", ""));
    assert.match(shown[0], /May I list the files\?.*rm -rf \//s);
    assert.match(shown[1], /\/etc\/x:3.*\$ ls.*"cwd": "\/etc"/s);
    quiet(page);
  },

  async an_address_is_shown_whole_and_opened_by_a_click_only(browser) {
    const page = await openPage(browser, { path: "#/inbox" });
    await page.waitForSelector(".empty");
    const assets = await page.getAttribute("script[src]", "src");
    const shown = await page.evaluate(async (folder) => {
      const { QuestionView } = await import(`${folder}/chat/question.js`);
      return ["https://login.example/\u202egnp", "javascript:alert(1)", "https://login.example/?a=1"].map((address) => {
        const { element } = new QuestionView({ id: "x", kind: "url", payload: { url: address }, prompt: [] });
        return [element.querySelector(".address-box").textContent, element.querySelector("a")?.href ?? "", element.querySelector("a")?.rel ?? ""];
      });
    }, assets.replace("/main.js", ""));
    assert.deepEqual(shown, [
      ["https://login.example/U+202Egnp", "", ""],
      ["javascript:alert(1)", "", ""],
      ["https://login.example/?a=1", "https://login.example/?a=1", "noopener noreferrer nofollow"],
    ]);
    quiet(page);
  },

  async every_kind_of_field_has_its_limits(browser) {
    const page = await openPage(browser);
    const schema = {
      type: "object",
      required: ["name", "size", "tags", "place"],
      properties: {
        name: { type: "string", minLength: 2, maxLength: 10, title: "Name" },
        mail: { type: "string", format: "email", title: "Mail" },
        size: { type: "integer", minimum: 1, maximum: 5, default: 3, title: "Size" },
        share: { type: "number", exclusiveMinimum: 0, title: "Share" },
        tags: { type: "array", items: { enum: ["red", "blue"] }, minItems: 1, title: "Tags" },
        colour: { enum: ["red", "blue"], default: "blue", title: "Colour" },
        mode: { oneOf: [{ const: "a", title: "First" }, { const: "b", title: "Second" }], title: "Mode" },
        yes: { type: "boolean", default: true, title: "Yes" },
        place: { type: "object", properties: { city: { type: "string", title: "City" } }, required: ["city"], title: "Place" },
        lines: { type: "array", items: { type: "string" }, title: "Lines" },
        any: { title: "Anything" },
        __proto_: { type: "string", default: "kept", title: "Odd" },
      },
    };
    const assets = await page.getAttribute("script[src]", "src");
    await page.evaluate(async ([folder, it]) => {
      const { schemaForm } = await import(`${folder}/chat/schema_form.js`);
      window.form = schemaForm(it);
      document.querySelector("main").replaceChildren(window.form.element);
    }, [assets.replace("/main.js", ""), schema]);
    const read = () => page.evaluate(() => window.form.read());
    assert.equal(await read(), undefined, "a required field is empty");
    await page.getByLabel("Name").fill("x");
    assert.equal(await read(), undefined, "too short");
    await page.getByLabel("Name").fill("Ada");
    await page.getByLabel("Size").fill("9");
    assert.equal(await read(), undefined, "too large");
    await page.getByLabel("Size").fill("4");
    assert.equal(await read(), undefined, "no tag");
    await page.getByLabel("red").check();
    assert.equal(await read(), undefined, "no city");
    await page.getByLabel("City").fill("Rome");
    await page.getByLabel("Mail").fill("no mail");
    assert.equal(await read(), undefined, "no address");
    await page.getByLabel("Mail").fill("");
    await page.getByLabel("Mode").selectOption({ label: "Second" });
    await page.getByLabel("Lines").fill("one\ntwo");
    await page.getByLabel("Anything").fill('{"a": 1}');
    await page.getByLabel("Share").fill("0");
    assert.equal(await read(), undefined, "not more than 0");
    await page.getByLabel("Share").fill("0.5");
    assert.deepEqual(await read(), { value: { name: "Ada", size: 4, share: 0.5, tags: ["red"], colour: "blue", mode: "b", yes: true, place: { city: "Rome" }, lines: ["one", "two"], any: { a: 1 }, __proto_: "kept" } });
    assert.equal(await page.locator(open).count(), 0);
    quiet(page);
  },
});
