// @ts-check
// Signing in with the one-time code that `trilogue ui` puts into the address.

import { h } from "./dom.js";
import { keepSecret, post } from "./api.js";
import { problemView } from "./problem_view.js";

const FRAGMENT = /^#sign-in=(.+)$/;

/** Takes the code out of the address, before anything else can see it. */
export function takeCode() {
  const code = FRAGMENT.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(null, "", `${location.pathname}${location.search}#/threads`);
  return code;
}

/** @param {string} code */
export async function signIn(code) {
  const session = await post("sign-in", { code: decodeURIComponent(code) });
  keepSecret(session.page_secret);
}

/** Ends the session, here and in every other page of this browser. */
export const signOut = () => post("sign-out", undefined).finally(() => (keepSecret(undefined), location.reload()));

/** What is shown instead of the page while nobody is signed in. @param {unknown} [error] */
export function signInCard(error) {
  const retry = h("button.primary", { type: "button", on: { click: () => location.reload() } }, "Try again");
  return h("main.sign-in", null, h("section.card", { "aria-labelledby": "sign-in-title" },
    h("h1", { id: "sign-in-title" }, "Sign in"),
    h("p", null, "Run this on the server’s machine. It opens this page with a code that works once:"),
    h("pre", { tabindex: 0 }, h("code", null, "trilogue ui")),
    error ? problemView(error) : null,
    retry,
  ));
}
