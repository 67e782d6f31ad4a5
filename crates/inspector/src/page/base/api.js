// @ts-check
// Requests to the server of this page. A session has two halves: a cookie that scripts cannot
// read, and a secret that the browser keeps for this origin. Browsers send the cookie to every port of
// a host; without the secret it has no effect there.

/**
 * @typedef {object} ProblemBody
 * @property {string} [code]
 * @property {string} [detail]
 * @property {string | null} [hint]
 * @property {string | null} [interrupt_id]
 * @property {boolean} [transient]
 */

export const ROOT = "/api/v1";
const PAGE_SECRET = "trilogue-page";
/** Dispatches `signed-out` when the server answers 401. */
export const session = new EventTarget();

/** An error response of the server, or the reason why no response arrived. */
export class Problem extends Error {
  /**
   * @param {number} status 0 if no response arrived.
   * @param {ProblemBody} body
   */
  constructor(status, body) {
    super(body.detail ?? `the server answered ${status}`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.hint = body.hint ?? undefined;
    this.transient = body.transient ?? false;
  }
}

/** @param {unknown} error */
export const isAbort = (error) => error instanceof DOMException && error.name === "AbortError";

/** @typedef {{ method?: string, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal }} Options */

/**
 * Sends a request. Throws a {@link Problem} if no response arrives.
 * @param {string} path relative to `/api/v1`, or an absolute path of this server
 * @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  // Before the sign-in the secret is missing. The header then only shows that the request comes from our page.
  const all = /** @type {Record<string, string>} */ ({ ...headers, "trilogue-page": localStorage.getItem(PAGE_SECRET) ?? "1" });
  if (body !== undefined) all["content-type"] = "application/json";
  try {
    return await fetch(path.startsWith("/") ? path : `${ROOT}/${path}`, {
      method,
      headers: all,
      signal,
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Problem(0, { code: "unreachable", detail: "the server cannot be reached", hint: "check that it runs: trilogue status", transient: true });
  }
}

/**
 * Sends a request. Throws a {@link Problem} unless it succeeds.
 * @param {string} path
 * @param {Options} [options]
 */
export async function request(path, options) {
  const response = await send(path, options);
  if (response.ok) return response;
  const problem = new Problem(response.status, await response.json().catch(() => ({})));
  if (response.status === 401) session.dispatchEvent(new Event("signed-out"));
  throw problem;
}

/**
 * @param {string} path
 * @param {{ signal?: AbortSignal }} [options]
 * @returns {Promise<any>}
 */
export async function get(path, options) {
  return (await request(path, options)).json();
}

/**
 * @param {string} path
 * @param {unknown} body
 * @param {{ headers?: Record<string, string>, method?: string }} [options]
 * @returns {Promise<any>}
 */
export async function post(path, body, options) {
  const response = await request(path, { method: "POST", body, ...options });
  return response.status === 204 ? undefined : response.json();
}

/** Stores the page's half of a session, or removes it. @param {string | undefined} secret */
export function keepSecret(secret) {
  if (secret === undefined) localStorage.removeItem(PAGE_SECRET);
  else localStorage.setItem(PAGE_SECRET, secret);
}

/** Returns whether the browser has the page's half of a session. */
export const hasSecret = () => localStorage.getItem(PAGE_SECRET) !== null;

/** Returns an unguessable key. Also works on pages without a secure context. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {string} id */
export const segment = (id) => encodeURIComponent(id);
