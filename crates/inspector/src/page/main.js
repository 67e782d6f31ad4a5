// @ts-check
// The start of the page: sign-in, the frame around every section, and the keys.

import { h, fill } from "./base/dom.js";
import { Problem, get, session } from "./base/api.js";
import { announce } from "./base/announce.js";
import { keepFresh, startFeed } from "./base/feed.js";
import { icon } from "./base/icons.js";
import { addShortcut, moveFocus, showKeys, startKeys } from "./base/keys.js";
import { go, startRouter } from "./base/router.js";
import { signIn, signInCard, signOut, takeCode } from "./base/sign_in.js";
import { openThreads } from "./chat/threads_section.js";
import { hurryAll } from "./log/thread_log.js";
import { openAgents } from "./panes/agents.js";
import { openApi } from "./panes/api_section.js";
import { openInbox } from "./panes/inbox.js";
import { openStatus } from "./panes/status.js";
import { pendingQuestions } from "./panes/threads_list.js";

const SECTIONS = [
  { name: "threads", label: "Chat", icon: "chat", key: "t" },
  { name: "inbox", label: "Inbox", icon: "inbox", key: "i" },
  { name: "agents", label: "Agents", icon: "agents", key: "a" },
  { name: "api", label: "API", icon: "api", key: "p" },
  { name: "status", label: "Status", icon: "status", key: "s" },
];

const count = h("span.count", { hidden: true });

async function start() {
  const link = takeCode();
  let isSigningIn = link !== undefined;
  try {
    if (link !== undefined) await signIn(link);
    isSigningIn = false;
    await get("agents");
  } catch (error) {
    if (isSigningIn || (error instanceof Problem && error.status === 401)) {
      removeFrame();
      document.body.append(signInCard(isSigningIn ? error : undefined));
      return;
    }
    // The section that causes any other error shows it.
  }
  session.addEventListener("signed-out", () => location.reload(), { once: true });
  build();
}

/** Removes the frame that the document shows before its scripts run. */
const removeFrame = () => document.querySelector("body > .frame")?.remove();

/** @type {Map<string, HTMLElement>} */
const links = new Map();

function build() {
  const main = h("main", { id: "main", tabindex: -1 });
  const items = SECTIONS.map((section) => {
    const link = h("a", { href: `#/${section.name}`, title: `${section.label} (g ${section.key})` }, icon(section.icon), h("span", null, section.label), section.name === "inbox" && count);
    links.set(section.name, link);
    return h("li", null, link);
  });
  const leave = h("button.quiet", { type: "button", hidden: true, on: { click: signOut } }, "Sign out");
  const keys = h("button.quiet", { type: "button", title: "Keys (?)", on: { click: showKeys } }, "Keys");
  const who = h("p.who.muted");
  removeFrame();
  document.body.append(
    h("a.skip", { href: "#main", on: { click: (/** @type {Event} */ event) => (event.preventDefault(), main.focus()) } }, "Skip to the content"),
    h("div.frame", null, h("nav.sidebar", { "aria-label": "Sections" }, h("p.brand", null, "Trilogue"), h("ul", null, items), h("div.sidebar-end", null, who, leave, keys)), main),
  );
  startFeed();
  bindKeys();
  startRouter(main, { threads: openThreads, inbox: openInbox, agents: openAgents, api: openApi, status: openStatus }, "#/threads", (name) => {
    for (const [section, link] of links) link.toggleAttribute("aria-current", section === name), section === name && link.setAttribute("aria-current", "page");
    document.title = `${SECTIONS.find((it) => it.name === name)?.label ?? ""} · Trilogue`;
  });
  keepFresh(new AbortController().signal, countQuestions, (change) => change.kind === "interrupt");
  addEventListener("online", hurryAll);
  get("caller").then((caller) => {
    fill(who, caller.principal);
    leave.hidden = !caller.session_expires_at;
  }, () => undefined);
}

async function countQuestions() {
  const waiting = (await pendingQuestions()).length;
  const before = Number(count.textContent);
  count.hidden = waiting === 0;
  count.textContent = String(waiting);
  if (waiting > before) announce(`${waiting} waiting in the inbox`);
}

function bindKeys() {
  for (const { name, label, key } of SECTIONS) addShortcut({ keys: `g ${key}`, label: `Go to ${label}`, run: () => go(`#/${name}`) });
  addShortcut({ keys: "j", label: "Next item", run: () => moveFocus(".row, [data-row]", 1) });
  addShortcut({ keys: "k", label: "Previous item", run: () => moveFocus(".row, [data-row]", -1) });
  addShortcut({ keys: "/", label: "Search", run: () => focusOn("[data-search]") });
  addShortcut({ keys: "n", label: "New thread", run: () => (go("#/new"), setTimeout(() => focusOn(".composer textarea"), 50)) });
  addShortcut({ keys: "c", label: "Write a message", run: () => focusOn(".composer textarea") });
  startKeys();
}

/** @param {string} selector */
function focusOn(selector) {
  const element = /** @type {HTMLElement | null} */ (document.querySelector(selector));
  element?.focus();
}

start();
