// @ts-check
// Times, durations and sizes in readable form.

/** @param {number} ms */
export function duration(ms) {
  if (ms < 0) return "0 ms";
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${(ms / 3_600_000).toFixed(1)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

/** @param {string | number | null | undefined} at */
export function ago(at) {
  if (!at) return "";
  const ms = Date.now() - new Date(at).getTime();
  if (ms < 10_000) return "now";
  if (ms < 60_000) return `${Math.round(ms / 1000)} s ago`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min ago`;
  if (ms < 86_400_000) return `${Math.round(ms / 3_600_000)} h ago`;
  return new Date(at).toLocaleDateString();
}

/** Returns milliseconds since 1970 with a fraction, from a server time with microseconds. @param {string} at */
export function milliseconds(at) {
  const fraction = /\.\d{3}(\d{1,3})/.exec(at);
  return Date.parse(at) + (fraction ? Number(`0.${fraction[1]}`) : 0);
}

/** @param {number} ms */
export function clock(ms) {
  const date = new Date(ms);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 ** 2) return `${(bytes / 1024).toFixed(bytes < 10240 ? 1 : 0)} KiB`;
  if (bytes < 1024 ** 3) return `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}

/** Returns the part of an id that distinguishes it. @param {string} id */
export function shortId(id) {
  return /^[0-9a-f]{8}-/.test(id) ? id.slice(-8) : id.length > 24 ? `${id.slice(0, 24)}…` : id;
}

/** @param {number} count @param {string} noun */
export const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
