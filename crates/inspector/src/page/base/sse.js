// @ts-check
// Server-sent events over fetch. Unlike an EventSource, a stream reports why it is refused, resumes, and can be stopped.

import { Problem, isAbort, request } from "./api.js";

/** @typedef {{ id: string | undefined, event: string, data: string }} Message */

const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 10_000;
/** Longer than the server's heartbeat of 15 seconds: a longer silence means that the connection is dead. */
const MAX_SILENCE_MS = 40_000;

/**
 * Reads the messages of one response until it ends.
 * @param {Response} response
 * @param {(message: Message) => void} onMessage
 * @param {AbortController} abort aborted after too much silence
 */
async function read(response, onMessage, abort) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  /** @type {Message} */
  let message = { id: undefined, event: "message", data: "" };
  let silence = 0;
  const wait = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort(), MAX_SILENCE_MS);
  };
  try {
    for (;;) {
      wait();
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line === "") {
          if (message.data !== "" || message.event !== "message") onMessage(message);
          message = { id: undefined, event: "message", data: "" };
          continue;
        }
        const colon = line.indexOf(":");
        if (colon === 0) continue;
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
        if (field === "data") message.data += message.data === "" ? text : `\n${text}`;
        else if (field === "event") message.event = text;
        else if (field === "id") message.id = text;
      }
    }
  } finally {
    clearTimeout(silence);
  }
}

/**
 * @typedef {object} Follower
 * @property {(message: Message) => void} onMessage
 * @property {(state: "connecting" | "open" | "waiting" | "refused", problem?: Problem) => void} onState
 * @property {() => string | undefined} lastId The id of the last handled message.
 */

/** A stream that reconnects after every break, until it is closed. */
export class Stream {
  /**
   * @param {string} path
   * @param {Follower} follower
   */
  constructor(path, follower) {
    this.path = path;
    this.follower = follower;
    this.closed = false;
    this.isResting = false;
    this.attempt = 0;
    /** @type {AbortController | undefined} */
    this.abort = undefined;
    /** @type {(() => void) | undefined} */
    this.wake = undefined;
    this.run();
  }

  async run() {
    while (!this.closed) {
      if (this.isResting) await new Promise((/** @type {(value: void) => void} */ done) => (this.wake = done));
      if (this.closed) return;
      const abort = (this.abort = new AbortController());
      this.follower.onState("connecting");
      try {
        const id = this.follower.lastId();
        const headers = { accept: "text/event-stream", ...(id ? { "last-event-id": id } : {}) };
        const response = await request(this.path, { headers, signal: abort.signal });
        this.attempt = 0;
        this.follower.onState("open");
        await read(response, this.follower.onMessage, abort);
      } catch (error) {
        if (this.closed) return;
        if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.follower.onState("refused", error);
          return;
        }
        if (!(error instanceof Problem) && !isAbort(error) && !(error instanceof TypeError)) throw error;
      }
      if (this.closed) return;
      this.follower.onState("waiting");
      await this.pause();
    }
  }

  /** Waits before the next attempt. The delay grows and is random. */
  pause() {
    const most = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.attempt++);
    return new Promise((/** @type {(value: void) => void} */ done) => {
      const timer = setTimeout(done, most / 2 + (Math.random() * most) / 2);
      this.wake = () => {
        clearTimeout(timer);
        done();
      };
    });
  }

  /** Breaks the connection, like a network failure. The stream reconnects by itself. */
  break() {
    this.abort?.abort();
  }

  /** Closes the connection until `hurry` is called. */
  rest() {
    this.isResting = true;
    this.abort?.abort();
  }

  /** Retries at once if the stream is waiting. */
  hurry() {
    this.isResting = false;
    this.attempt = 0;
    this.wake?.();
  }

  close() {
    this.closed = true;
    this.abort?.abort();
    this.wake?.();
  }
}
