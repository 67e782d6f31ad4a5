// @ts-check
// The agents of the server. Fetched once, and again on request.

import { get } from "./api.js";

/** @typedef {any} Agent */

/** @type {Promise<Agent[]> | undefined} */
let agents;

/** Fetches all pages of a list, up to a number of items. @param {string} path @param {number} most */
export async function allPages(path, most) {
  const items = [];
  let after = "";
  do {
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}limit=500${after ? `&after=${encodeURIComponent(after)}` : ""}`);
    items.push(...page.items);
    after = page.next ?? "";
  } while (after && items.length < most);
  return items;
}

/** @param {boolean} [again] */
export function listAgents(again = false) {
  if (!agents || again) {
    agents = get("agents").then((page) => page.items);
    agents.catch(() => (agents = undefined));
  }
  return agents;
}
