// @ts-check
// Reports changes on the server, from its stream of changes.

import { ROOT } from "./api.js";
import { Stream } from "./sse.js";

/** Changes within this time are reported together. */
const GATHER_MS = 60;

/** The minimum time between two refreshes. */
const MIN_REFRESH_MS = 300;

/** @typedef {{ kind: "thread" | "thread_removed" | "run" | "interrupt" | "any", thread_id?: string, run_id?: string, interrupt_id?: string, status?: string }} Change */

/** @type {Set<(changes: Change[]) => void>} */
const watchers = new Set();
/** @type {Change[]} */
let gathered = [];
let timer = 0;
/** @type {Stream | undefined} */
let stream;

/** @param {Change} change */
function tell(change) {
  gathered.push(change);
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    const changes = gathered;
    gathered = [];
    for (const watcher of watchers) watcher(changes);
  }, GATHER_MS);
}

/** Begins to listen. Called again after a sign-in. */
export function startFeed() {
  stream?.close();
  stream = new Stream(`${ROOT}/changes`, {
    // The stream has no positions: the lists already contain all earlier changes.
    lastId: () => undefined,
    onState: (state) => {
      if (state === "open") tell({ kind: "any" });
    },
    onMessage: (message) => {
      if (message.event === "message") tell(JSON.parse(message.data));
      else tell({ kind: "any" });
    },
  });
}

/**
 * Calls back after changes and when the page becomes visible, until the signal ends.
 * @param {AbortSignal} signal
 * @param {(changes: Change[]) => void} watcher
 */
export function watch(signal, watcher) {
  watchers.add(watcher);
  signal.addEventListener("abort", () => watchers.delete(watcher));
  document.addEventListener("visibilitychange", () => document.hidden || tell({ kind: "any" }), { signal });
}

/** Reports a change that this page made. */
export const changed = () => tell({ kind: "any" });

/**
 * Runs a refresh now and after every change: one at a time, and not too often.
 * @param {AbortSignal} signal
 * @param {() => Promise<unknown>} refresh
 * @param {(change: Change) => boolean} [concerns] whether a change requires a refresh
 */
export function keepFresh(signal, refresh, concerns = () => true) {
  let isBusy = false;
  let isWanted = false;
  const run = async () => {
    if (isBusy) {
      isWanted = true;
      return;
    }
    isBusy = true;
    do {
      isWanted = false;
      await refresh().catch((error) => {
        if (!signal.aborted) console.debug("refresh failed", error);
      });
      await new Promise((done) => setTimeout(done, MIN_REFRESH_MS));
    } while (isWanted && !signal.aborted);
    isBusy = false;
  };
  watch(signal, (changes) => {
    if (changes.some((change) => change.kind === "any" || concerns(change))) run();
  });
  return run();
}
