// Hostile texts in every field that an agent, a client or a file has.

import { createServer } from "node:http";
import { once } from "node:events";
import { api, assert, check, elsewhere, openPage, quiet, run, url } from "./browser.mjs";
import { hostileTexts } from "./hostile.mjs";

const HOSTILE = hostileTexts(elsewhere);

/** Checks that no script ran, that nothing was loaded from elsewhere, and that nothing in the page could do so. */
async function isHarmless(page, where) {
  const found = await page.evaluate(() => {
    const bad = [];
    if (window.__hit !== undefined) bad.push(`a script ran: ${window.__hit}`);
    for (const element of document.querySelectorAll("*")) {
      for (const { name, value } of element.attributes) {
        if (/^on/.test(name)) bad.push(`${element.tagName} ${name}`);
        if (/^(?:href|src|action|formaction|xlink:href)$/.test(name) && /^\s*(?:javascript|data|vbscript)\s*:/i.test(value)) bad.push(`${element.tagName} ${name}=${value.slice(0, 60)}`);
        // An agent's document is in a separate frame.
        if (name !== "srcdoc" && /[\u202a-\u202e\u2066-\u2069\u0007\u200b]/.test(value)) bad.push(`an unseen character in ${element.tagName} ${name}`);
      }
      if (/^(?:SCRIPT|STYLE|BASE|META|LINK|OBJECT|EMBED)$/.test(element.tagName) && !document.head.contains(element)) bad.push(element.tagName);
      if (element.tagName === "IFRAME" && element.getAttribute("sandbox") !== "") bad.push("a frame without a sandbox");
      if (element.tagName === "A" && element.target === "_blank" && !/noopener/.test(element.rel)) bad.push(`a link without noopener: ${element.href}`);
    }
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (/[\u202a-\u202e\u0007\u001b\u200b]/.test(walker.currentNode.data)) bad.push(`an unseen character in ‘${walker.currentNode.data.slice(0, 40)}’`);
    return bad;
  });
  assert.deepEqual(found, [], where);
}

const openAll = (page) => page.evaluate(() => document.querySelectorAll("main details").forEach((it) => (it.open = true)));

await check({
  async nothing_that_an_agent_says_does_anything(browser) {
    const asked = await run("coder", "hostile", { metadata: { note: HOSTILE[0] } });
    assert.equal(asked.status, "interrupted");
    // A frame without scripts reports blocked scripts, which is expected.
    const allow = [/sandboxed|about:srcdoc|Content Security Policy|ERR_BLOCKED|blob:/i];
    const page = await openPage(browser, { path: `#/threads/${asked.thread_id}`, allow });
    await page.waitForSelector(".question[data-open] .options button");
    for (;;) {
      const more = page.locator(".earlier:visible");
      if ((await more.count()) === 0) break;
      await more.click();
    }
    await openAll(page);
    await page.waitForFunction((count) => document.querySelectorAll(".options button").length === count, HOSTILE.length);
    await page.waitForSelector(".unseen >> text=U+202E");
    await page.waitForFunction(() => document.querySelectorAll("iframe[sandbox='']").length > 0);
    await isHarmless(page, "conversation");
    // Every frame stays without scripts and without an origin.
    for (const frame of page.frames().slice(1)) assert.notEqual(await frame.evaluate(() => self.origin).catch(() => "null"), url);
    await page.click("text=Timeline");
    await page.waitForSelector(".virtual-row");
    for (const type of ["tool.ended", "interrupt.raised", "message.part", "state.plan"]) {
      await page.selectOption("[aria-label=Type]", type);
      await page.waitForFunction((it) => [...document.querySelectorAll(".virtual-row .type")].every((row) => row.textContent === it), type);
      await page.click(".virtual-row >> nth=0");
      await page.waitForSelector(".form-card >> nth=1");
      await isHarmless(page, `forms of ${type}`);
    }
    await page.goto(`${url}/#/inbox`);
    await page.waitForSelector(".question[data-open] .options button");
    await openAll(page);
    await isHarmless(page, "inbox");
    await page.click(`.question[data-id="${asked.interrupts[0].id}"] .options button >> nth=1`);
    await page.waitForSelector(".resolution");
    await isHarmless(page, "answered");
    await page.goto(`${url}/#/threads`);
    await page.waitForSelector("[data-thread]");
    await isHarmless(page, "list");
    await page.goto(`${url}/#/status`);
    await page.waitForSelector(".tile");
    await isHarmless(page, "status");
    quiet(page);
  },

  async nothing_in_citations_steps_names_and_titles_does_anything(browser) {
    const parts = HOSTILE.flatMap((text) => [
      { content: text, content_type: "text/plain" },
      { content_type: "text/plain", metadata: { kind: "citation", start_index: 0, end_index: 5, url: text, title: text, description: text } },
      { content_type: "text/plain", metadata: { kind: "citation", start_index: -9, end_index: 1e15, url: `javascript:${text}` } },
      { content_type: "text/plain", metadata: { kind: "trajectory", message: text, tool_name: text, tool_input: { [text]: text }, tool_output: text } },
      { content: text, content_type: "text/html", name: `../../${text}.html` },
      { content: text, content_type: "text/markdown", name: text },
      { content: text, content_type: "image/svg+xml", name: text },
      { content_url: text, content_type: "text/plain", name: text },
    ]);
    const echoed = await run("echo", [{ parts }], { thread_metadata: { title: HOSTILE.join("") } });
    const allow = [/sandboxed|about:srcdoc|Content Security Policy|ERR_BLOCKED|blob:/i];
    const page = await openPage(browser, { path: `#/threads/${echoed.thread_id}`, allow });
    await page.waitForSelector(".message[data-role=agent] .artifact");
    await openAll(page);
    await isHarmless(page, "echoed");
    for (const mark of await page.locator(".mark").all()) {
      await mark.evaluate((it) => it.click());
      await page.waitForSelector(".citation");
      await isHarmless(page, "card");
      await page.keyboard.press("Escape");
    }
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator("[aria-label^=Download]").first().click()]);
    assert.match(download.suggestedFilename(), /^[^/\\<>:"|?*\u0000-\u001f\u202e]+$/);
    quiet(page);
  },

  async what_a_person_writes_and_addresses_do_nothing(browser) {
    const page = await openPage(browser, { allow: [/404|400/] });
    for (const text of HOSTILE) {
      await page.goto(`${url}/#/threads/${encodeURIComponent(text)}?view=timeline&beside=${encodeURIComponent(text)}`);
      await page.waitForSelector(".thread .failure");
      await page.goto(`${url}/#/agents/${encodeURIComponent(text)}`);
      await page.waitForSelector('p.empty:has-text("not found")');
      await isHarmless(page, text);
    }
    await page.goto(`${url}/#/threads`);
    await page.fill("[data-search]", HOSTILE[1]);
    await isHarmless(page, "search");
    quiet(page);
  },

  async a_cookie_is_worth_nothing_at_another_port(browser) {
    const page = await openPage(browser);
    const received = [];
    const other = createServer((request, response) => {
      received.push(request.headers);
      response.setHeader("content-type", "text/html").end("<title>other</title>");
    }).listen(0, "127.0.0.1");
    await once(other, "listening");
    const foreign = `http://127.0.0.1:${other.address().port}`;
    // A link in a message opens it in the same browser.
    const opened = await page.context().newPage();
    await opened.goto(`${foreign}/api/v1/threads`);
    const [name, secret] = received[0].cookie.split("=");
    assert.match(name, /^trilogue/, "the browser sends the cookie to every port");
    const host = new URL(url).host;
    for (const headers of [
      { authorization: `Bearer ${secret}` },
      { authorization: `Session ${secret}` },
      { "x-api-key": secret },
      { cookie: received[0].cookie },
      { cookie: received[0].cookie, "trilogue-page": "1" },
      { cookie: received[0].cookie, "trilogue-page": secret },
    ]) {
      const response = await fetch(`${url}/api/v1/threads`, { headers: { ...headers, host } });
      assert.equal(response.status, 401, JSON.stringify(Object.keys(headers)));
    }
    assert.deepEqual(await opened.evaluate(() => [document.cookie, localStorage.length]), ["", 0]);
    // The browser also blocks requests of the other page in the reader's name.
    const asked = await opened.evaluate(async (address) => {
      const modes = [{ credentials: "include" }, { credentials: "include", mode: "no-cors" }];
      return Promise.all(modes.map((mode) => fetch(`${address}/api/v1/threads`, mode).then((it) => it.status, () => "refused")));
    }, url);
    assert.deepEqual(asked, ["refused", 0]);
    other.close();
    quiet(page);
  },

  async a_link_of_another_person_signs_nobody_in_without_a_yes(browser) {
    const mallory = await api("tokens", { label: "mallory", principal: "mallory" });
    const link = async () => {
      const response = await fetch(`${url}/api/v1/sign-in-links`, { method: "POST", headers: { authorization: `Bearer ${mallory.secret}` } });
      return `${url}/${new URL((await response.json()).url).hash}`;
    };
    const open = async (page, address) => {
      await page.goto("about:blank");
      await page.goto(address);
    };
    const page = await openPage(browser);
    await open(page, await link());
    await page.waitForSelector(".sign-in >> text=Sign in as mallory?");
    assert.match(await page.textContent(".sign-in"), /You are signed in as owner/);
    await page.click("text=Stay owner");
    await page.waitForSelector(".who >> text=owner");
    quiet(page);
    // The same before a sign-in.
    const fresh = await openPage(browser, { signIn: false, allow: [/401/] });
    const sent = await link();
    await open(fresh, sent);
    await fresh.waitForSelector(".sign-in >> text=Sign in as mallory?");
    assert.equal(await fresh.evaluate(() => localStorage.getItem("trilogue-page")), null);
    await fresh.click("text=Cancel");
    await fresh.waitForSelector(".sign-in pre");
    // A key that an attacker invents does not help.
    const command = await fresh.textContent(".sign-in pre");
    const [, key] = /--browser ([0-9a-f]{32})$/.exec(command);
    await open(fresh, `${sent}&browser=${"0".repeat(32)}`);
    await fresh.waitForSelector(".sign-in >> text=Sign in as mallory?");
    // A link that this browser requested signs in at once, and only once.
    await open(fresh, `${sent}&browser=${key}`);
    await fresh.waitForSelector(".who >> text=mallory");
    await open(fresh, `${await link()}&browser=${key}`);
    await fresh.waitForSelector(".who >> text=mallory");
    const own = await api("sign-in-links", null, "POST");
    await open(fresh, `${url}/${new URL(own.url).hash}&browser=${key}`);
    await fresh.waitForSelector(".sign-in >> text=Sign in as owner?");
    quiet(fresh);
  },

  async another_page_cannot_frame_the_inspector(browser) {
    const page = await openPage(browser, { allow: [/.*/] });
    const embeds = (address) => `<iframe src="${address}"></iframe><object data="${address}" type="text/html"></object><embed src="${address}" type="text/html">`;
    const other = createServer((request, response) => {
      response.setHeader("content-type", "text/html");
      if (request.url === "/control") return response.end("<main>framed</main>");
      response.end(request.url === "/frames" ? embeds("/control") : embeds(`${url}/`));
    }).listen(0, "127.0.0.1").unref();
    await once(other, "listening");
    const foreign = `http://127.0.0.1:${other.address().port}`;
    // The same browser, signed in, also sends the cookie to frames of another port.
    const opened = await page.context().newPage();
    const shown = async (address) => {
      await opened.goto(address, { waitUntil: "load" });
      // By then, each frame is loaded or refused.
      const frames = opened.frames().slice(1);
      const counts = await Promise.all(frames.map((frame) => frame.locator("main, nav, .frame, .sign-in").count().catch(() => 0)));
      return counts.reduce((sum, count) => sum + count, 0);
    };
    assert.equal(await shown(`${foreign}/frames`), 3, "what may be framed is seen");
    assert.equal(await shown(foreign), 0, "the inspector in a frame");
    other.close();
  },

  async a_document_of_an_agent_opens_no_connection(browser) {
    const listen = async () => {
      const listener = createServer((request, response) => response.end()).listen(0, "127.0.0.1").unref();
      const counted = { listener, connections: 0 };
      listener.on("connection", () => counted.connections++);
      await once(listener, "listening");
      return { counted, address: `http://127.0.0.1:${listener.address().port}` };
    };
    const loads = (there) => [
      ...["iframe", "frame", "embed", "img", "audio", "video", "source", "track", "script", "input type=image", "portal", "fencedframe"].map((tag) => `<${tag} src="${there}/${tag.split(" ")[0]}"></${tag.split(" ")[0]}>`),
      `<frameset><frame src="${there}/frameset"></frameset>`,
      `<object data="${there}/object"></object><applet archive="${there}/applet"></applet>`,
      `<img srcset="${there}/srcset 1x"><picture><source srcset="${there}/picture"><img></picture><video poster="${there}/poster"></video>`,
      `<div><template shadowrootmode="open"><a href="${there}" ping="${there}/ping">x</a><link rel="preconnect" href="${there}"><iframe src="${there}/shadow"></iframe></template></div>`,
      ...["preconnect", "dns-prefetch", "prefetch", "preload", "modulepreload", "prerender", "stylesheet", "icon", "manifest"].map((rel) => `<link rel="${rel}" as="image" href="${there}/${rel}">`),
      `<style>@import url(${there}/import); body { background: url(${there}/style) }</style><p style="background: url(${there}/attribute)">text</p>`,
      `<table background="${there}/table"><tr><td background="${there}/cell">cell</td></tr></table>`,
      `<svg><image href="${there}/svg"/><use href="${there}/use#x"/><feImage href="${there}/filter"/></svg>`,
      `<meta http-equiv="refresh" content="0;url=${there}/refresh"><base href="${there}/"><img src="relative">`,
      `<noscript><iframe src="${there}/noscript"></iframe></noscript><math><mtext><iframe src="${there}/math"></iframe></mtext></math>`,
    ].join("");
    const [one, other] = [await listen(), await listen()];
    const echoed = await run("echo", [{ parts: [{ content: `${loads(one.address)}<p>the end</p>`, content_type: "text/html", name: "document.html" }] }]);
    const page = await openPage(browser, { path: `#/threads/${echoed.thread_id}`, allow: [/.*/] });
    await page.waitForSelector("iframe[sandbox='']");
    for (const frame of await page.locator("iframe[sandbox='']").all()) {
      await frame.scrollIntoViewIfNeeded();
      await frame.contentFrame().getByText("the end").waitFor();
    }
    // The same document without protection connects. In that time, the protected one would have connected too.
    const control = await page.context().newPage();
    const asked = once(other.counted.listener, "request");
    await control.setContent(loads(other.address)).catch(() => undefined);
    await asked;
    assert.ok(other.counted.connections > 0);
    assert.equal(one.counted.connections, 0, "connections of the protected document");
    one.counted.listener.close();
    other.counted.listener.close();
  },

  async the_policy_of_the_page_holds(browser) {
    const page = await openPage(browser, { allow: [/.*/] });
    const results = await page.evaluate(async (elsewhere) => {
      const blocked = [];
      const attempt = (name, act) => {
        try {
          act();
        } catch {
          blocked.push(name);
        }
      };
      attempt("innerHTML", () => (document.createElement("div").innerHTML = "<b>x</b>"));
      attempt("policy", () => trustedTypes.createPolicy("other", {}));
      attempt("twice", () => trustedTypes.createPolicy("inspector", {}));
      const script = document.createElement("script");
      attempt("script", () => {
        script.textContent = "window.__inline = 1";
        document.body.append(script);
      });
      await fetch(elsewhere).catch(() => blocked.push("fetch"));
      return { blocked, inline: window.__inline };
    }, elsewhere);
    assert.equal(results.inline, undefined);
    for (const name of ["innerHTML", "policy", "twice", "script", "fetch"]) assert.ok(results.blocked.includes(name), results.blocked.join());
    assert.equal((await api("caller")).principal, "owner");
  },
});
