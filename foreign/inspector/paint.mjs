// Measures how soon the page paints: the browser's own paint timing, from the start of the navigation.
//
//     node paint.mjs --modules FOLDER --url URL --token TOKEN
//
// `first` is a browser without the page's files, and `again` one that has them. Both are signed in.
// The plain-text document shows the minimum cost of any page in this browser on this machine.

import { allowSignIn, launch, run, signInLink, url } from "./browser.mjs";

const ROUNDS = 15;
const PLACES = { "plain text": ["healthz", "pre"], "list of threads": ["#/threads", "[data-thread]"], "thread": [`#/threads/${(await run("echo", "Hello")).thread_id}`, ".message"] };

/** Milliseconds until the first paint, and until the content is visible. */
async function visit(context, [place, ready]) {
  const page = await context.newPage();
  await page.goto(`${url}/${place}`);
  const shown = await page.waitForFunction((selector) => document.querySelector(selector) && performance.now(), ready, { polling: "raf" });
  const paint = await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  const times = { "first paint": await paint.jsonValue(), "content": await shown.jsonValue() };
  await page.close();
  return times;
}

/** The value at this quantile. */
const quantile = (values, share) => values.sort((one, other) => one - other)[Math.min(values.length - 1, Math.floor(values.length * share))];

const browser = await launch();
const signedIn = await browser.newContext();
await (await signedIn.newPage()).goto(await signInLink());
await allowSignIn(signedIn.pages()[0]);
const storageState = await signedIn.storageState();
for (const [name, place] of Object.entries(PLACES)) {
  const times = {};
  for (let round = 0; round < ROUNDS; round++) {
    const context = await browser.newContext({ storageState });
    for (const when of ["first", "again"]) {
      for (const [what, ms] of Object.entries(await visit(context, place))) (times[`${name}, ${when}: ${what}`] ??= []).push(ms);
    }
    await context.close();
  }
  for (const [what, all] of Object.entries(times)) console.log(`${what}: median ${quantile(all, 0.5).toFixed(0)} ms, 9 of 10 below ${quantile(all, 0.9).toFixed(0)} ms`);
}
await browser.close();
