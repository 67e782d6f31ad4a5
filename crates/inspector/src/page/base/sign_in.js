// @ts-check
// Signs in with the one-time code that `trilogue ui` puts into the address.
//
// An attacker can send their own link. A link signs in at once only if this browser requested it, or
// is already signed in as the same person. Otherwise the page asks the user: the owner of the link would
// see everything that the user writes.

import { h } from "./dom.js";
import { get, hasSecret, keepSecret, newKey, post } from "./api.js";
import { problemView } from "./problem_view.js";

const FRAGMENT = /^#sign-in=([^&]+)(?:&browser=([0-9a-f]+))?$/;
/** The storage key for the key with which this browser requests a link. */
const BROWSER_KEY = "trilogue-sign-in";

/** @typedef {{ code: string, isRequested: boolean }} Link */
/** @typedef {{ tenant: string, principal: string }} Owner */

/** Removes the code from the address, before other code can see it. @returns {Link | undefined} */
export function takeCode() {
  const found = FRAGMENT.exec(location.hash);
  if (found === null) return undefined;
  history.replaceState(null, "", `${location.pathname}${location.search}#/threads`);
  const key = localStorage.getItem(BROWSER_KEY);
  return { code: decodeURIComponent(found[1] ?? ""), isRequested: key !== null && found[2] === key };
}

/**
 * Signs in. May ask the user first, and does nothing if the user declines.
 * @param {Link} link
 */
export async function signIn(link) {
  const { code } = link;
  if (!link.isRequested) {
    /** @type {Owner} */
    const owner = await post("sign-in-links/look-up", { code });
    /** @type {Owner | undefined} */
    const signedIn = hasSecret() ? await get("caller").catch(() => undefined) : undefined;
    const isSame = signedIn?.principal === owner.principal && signedIn?.tenant === owner.tenant;
    if (!isSame && !(await isAllowed(owner, signedIn))) return;
  }
  const session = await post("sign-in", { code });
  localStorage.removeItem(BROWSER_KEY);
  keepSecret(session.page_secret);
}

/**
 * Asks the user whether to sign in as this person.
 * @param {Owner} owner
 * @param {Owner | undefined} signedIn
 * @returns {Promise<boolean>}
 */
function isAllowed(owner, signedIn) {
  return new Promise((resolve) => {
    const decide = (/** @type {boolean} */ allows) => (card.remove(), resolve(allows));
    const button = (/** @type {"button" | "button.primary"} */ kind, /** @type {boolean} */ allows, /** @type {string} */ text) =>
      h(kind, { type: "button", on: { click: () => decide(allows) } }, text);
    const card = h("main.sign-in", null, h("section.card", { "aria-labelledby": "sign-in-title" },
      h("h1", { id: "sign-in-title" }, "Sign in as ", h("b", null, owner.principal), "?"),
      h("p", null, "Continue only if you made this link yourself, with ", h("code", null, "trilogue ui"), ". Its owner can read everything that you write here."),
      signedIn === undefined ? null : h("p", null, "You are signed in as ", h("b", null, signedIn.principal), ". This ends that session on this browser."),
      button("button.primary", true, `Sign in as ${owner.principal}`),
      button("button", false, signedIn === undefined ? "Cancel" : `Stay ${signedIn.principal}`),
    ));
    document.querySelector("body > .frame")?.remove();
    document.body.append(card);
  });
}

/** Returns the key with which this browser requests a link. */
function browserKey() {
  const known = localStorage.getItem(BROWSER_KEY);
  if (known !== null) return known;
  const key = newKey();
  localStorage.setItem(BROWSER_KEY, key);
  return key;
}

/** Ends the session, here and on all other pages of this browser. */
export const signOut = () => post("sign-out", undefined).finally(() => (keepSecret(undefined), location.reload()));

/** Shown instead of the page while the browser is signed out. @param {unknown} [error] */
export function signInCard(error) {
  const retry = h("button.primary", { type: "button", on: { click: () => location.reload() } }, "Try again");
  return h("main.sign-in", null, h("section.card", { "aria-labelledby": "sign-in-title" },
    h("h1", { id: "sign-in-title" }, "Sign in"),
    h("p", null, "Run this on the server’s machine. It opens this page with a code that works once:"),
    h("pre", { tabindex: 0 }, h("code", null, `trilogue ui --browser ${browserKey()}`)),
    error ? problemView(error) : null,
    retry,
  ));
}
