// Makes pictures of the page for the documentation, from a server with some content.
//
//     … --folder FOLDER

import { mkdir } from "node:fs/promises";
import { api, assert, check, openPage, options, quiet, run } from "./browser.mjs";

const WIDE = { width: 1280, height: 720 };
const MEDIUM = { width: 1100, height: 680 };
const NARROW = { width: 380, height: 760 };

const bees = await run("researcher", "honey bees");
const wasps = await run("researcher", "wasps");
const state = await run("echo", "Plan the release");
await api(`threads/${state.thread_id}`, { values: { stage: "draft", checked: ["tests", "docs"] } }, "PATCH");
await run("echo", "Publish it", { thread_id: state.thread_id, create_thread: undefined });
const code = await run("coder", "code");
const failed = await run("coder", "fail:the disk is full");
for (const [thread, title] of [[code, "Greet people by name"], [failed, "Tidy the build folder"]]) await api(`threads/${thread.thread_id}`, { metadata: { "trilogue.title": title } }, "PATCH");
const mail = await run("mailcomposer", { message: "write to ada@example.com saying that we meet on Friday" });
const events = (await api(`threads/${state.thread_id}/events?limit=1000`)).items;
const answer = events.find((event) => event.type === "message.part" && event.number > 4).number;

/** Waits until all images are drawn. */
async function settled(page) {
  await page.waitForFunction(() => [...document.images].every((it) => it.complete));
  await page.evaluate(() => document.fonts.ready);
}

/** One picture: an address in the page, the elements that must be visible, and the steps before it. */
const picture = (name, place, ready, { viewport = MEDIUM, colorScheme = "light", act } = {}) => [name, async (browser) => {
  const page = await openPage(browser, { viewport, colorScheme, path: place });
  await page.waitForSelector(ready);
  await act?.(page);
  await settled(page);
  await page.screenshot({ path: `${options.folder}/${name}.png`, caret: "hide" });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), viewport.width);
  quiet(page);
}];

await mkdir(options.folder, { recursive: true });
await check(Object.fromEntries([
  picture("chat", `#/threads/${bees.thread_id}`, ".sources", { act: (page) => page.locator(".message[data-role=agent] .text").first().evaluate((it) => it.scrollIntoView()) }),
  picture("chat-dark", `#/threads/${code.thread_id}`, ".question .difference", { colorScheme: "dark" }),
  picture("chat-narrow", `#/threads/${bees.thread_id}`, ".sources", { viewport: NARROW }),
  picture("inbox", "#/inbox", `[data-id="${mail.interrupts[0].id}"]`, { act: (page) => page.waitForSelector(".question .difference") }),
  picture("timeline", `#/threads/${state.thread_id}?view=timeline`, ".virtual-row", { viewport: WIDE, act: async (page) => {
    await page.click("summary >> text=State");
    await page.waitForSelector(".state-as-of pre");
  } }),
  picture("rosetta", `#/threads/${state.thread_id}?view=timeline&event=${answer}`, ".fidelity", { viewport: WIDE }),
  picture("difference", `#/threads/${bees.thread_id}?beside=${wasps.thread_id}&difference=1`, ".differences .added", { viewport: { width: 1100, height: 560 } }),
  picture("status", "#/status", ".histogram svg"),
]));
