// A real browser on the inspector's page, and the helpers of all test scripts.
//
//     node SCRIPT.mjs --modules FOLDER --url URL --token TOKEN --elsewhere URL [--only TEXT]
//
// `--modules` is the folder where `scripts/foreign` has put the pinned packages. No program may ever connect to `elsewhere`: the test listens there.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { parseArgs } from "node:util";

const ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const LIMIT_MS = 20_000;

const text = { type: "string" };
export const { values: options } = parseArgs({ options: { modules: text, url: text, token: text, elsewhere: text, folder: text, only: text } });

export const load = createRequire(`${resolve(options.modules)}/`);
const { chromium } = load("playwright-core");

export const { url, elsewhere } = options;

/** Sends a request of the test itself, with the token. */
export async function api(path, body, method = body === undefined ? "GET" : "POST") {
  const response = await fetch(`${url}/api/v1/${path}`, {
    method,
    headers: { authorization: `Bearer ${options.token}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}

export const run = (agent, input, more = {}) => api("runs", { agent, input, create_thread: true, ...more });

/** A link that signs in once. */
export async function signInLink() {
  const link = await api("sign-in-links", null, "POST");
  return `${url}/${new URL(link.url).hash}`;
}

/** Confirms that the link is the user's own: a browser that did not request it asks. */
export async function allowSignIn(page) {
  await page.click(".sign-in button.primary");
  await page.waitForSelector("nav.sidebar");
}

/** A signed-in page. Errors and warnings in its console fail the script. */
export async function openPage(browser, { path = "#/threads", signIn = true, allow = [], ...more } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: "reduce", ...more });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
  context.setDefaultTimeout(LIMIT_MS);
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error.stack ?? error)));
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warning") return;
    const text = `${message.text()} ${message.location().url}`;
    if (!allow.some((pattern) => pattern.test(text))) page.complaints.push(text);
  });
  // The page must connect only to its own server, for every text of an agent.
  page.elsewhere = [];
  const note = (request) => {
    if (!request.url().startsWith(url) && !/^(?:blob|data|about):/.test(request.url())) page.elsewhere.push(request.url());
  };
  page.on("requestfinished", note);
  // The browser also reports requests that the page's policy blocked before they began.
  page.on("requestfailed", (request) => request.failure()?.errorText === "csp" || note(request));
  if (signIn) {
    await page.goto(await signInLink());
    await allowSignIn(page);
    await page.goto(`${url}/${path}`);
  }
  return page;
}

export function quiet(page) {
  assert.deepEqual(page.complaints, [], "the page's console");
  assert.deepEqual(page.elsewhere, [], "requests to elsewhere");
}

export const launch = () => chromium.launch({ executablePath: "/usr/bin/chromium", args: ARGUMENTS });

/** Runs checks one after the other, each separately, and prints their results. */
export async function check(checks) {
  const browser = await launch();
  let failed = 0;
  for (const [name, body] of Object.entries(checks)) {
    if (options.only && !name.includes(options.only)) continue;
    const began = performance.now();
    try {
      await body(browser);
      console.log(`ok ${name} (${Math.round(performance.now() - began)} ms)`);
    } catch (error) {
      failed++;
      console.log(`FAILED ${name}\n${error?.stack ?? error}`);
      for (const context of browser.contexts()) {
        for (const page of context.pages()) {
          console.log(`-- page ${page.url()}\n${(page.complaints ?? []).join("\n")}`);
          if (process.env.SCREENSHOT) await page.screenshot({ path: `${process.env.SCREENSHOT}-${name}.png` });
        }
      }
    }
    for (const context of browser.contexts()) await context.close();
  }
  await browser.close();
  console.log(`${failed} failed`);
  process.exitCode = failed > 0 ? 1 : 0;
}

export { assert };
