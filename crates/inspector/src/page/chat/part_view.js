// @ts-check
// A part of a message that is not text: images, sound, documents, artifacts, links.

import { h, link } from "../base/dom.js";
import { draw } from "../base/draw.js";
import { request } from "../base/api.js";
import { sandboxed } from "../base/trusted.js";
import { fileName } from "../base/visible.js";
import { size } from "../base/time.js";
import { textBlock } from "./json_view.js";
import { decorate } from "./text_view.js";

/** Content above this size is fetched only after a click. */
const MAX_UNASKED_BYTES = 8 * 1024 * 1024;
/** Text above this size is shown only after a click. */
const MAX_UNASKED_TEXT_BYTES = 200_000;
const IMAGE = /^image\/(?:png|jpeg|gif|webp|avif|bmp|svg\+xml|x-icon)$/;
const AUDIO = /^audio\//;
const VIDEO = /^video\//;
const TEXT = /^text\/|[/+]json$|[/+]xml$|\/(?:javascript|yaml|toml|x-sh)$/;
/** Types that a browser may open as a file. All others are downloaded as bytes. */
const SAFE_FILE = /^(?:image\/(?:png|jpeg|gif|webp)|audio\/[\w.+-]+|video\/[\w.+-]+|application\/pdf|text\/(?:plain|markdown|csv))$/;
const ENDINGS = /** @type {Record<string, string>} */ ({ "application/pdf": "pdf", "text/html": "html", "text/markdown": "md", "text/plain": "txt", "application/json": "json", "image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg", "audio/wav": "wav", "audio/mpeg": "mp3" });

/** @param {any} part */
const mediaType = (part) => String(part.content_type ?? "").split(";")[0].trim().toLowerCase();

/** @param {any} part */
function byteLength(part) {
  if (part.blob) return part.blob.length;
  const length = part.content?.length ?? 0;
  return part.content_encoding === "base64" ? Math.floor((length * 3) / 4) : length;
}

/**
 * Returns the bytes of a part, from the event or from this server.
 * @param {any} part
 * @returns {Promise<Blob>}
 */
async function bytes(part) {
  const type = mediaType(part);
  if (part.blob) {
    const url = new URL(part.blob.url, location.origin);
    if (url.origin !== location.origin) throw new Error("the content is not on this server");
    return new Blob([await (await request(url.pathname + url.search)).arrayBuffer()], { type });
  }
  if (part.content_encoding !== "base64") return new Blob([part.content ?? ""], { type });
  const binary = atob(part.content.replace(/-/g, "+").replace(/_/g, "/"));
  return new Blob([Uint8Array.from(binary, (letter) => letter.charCodeAt(0))], { type });
}

/**
 * @param {any} part
 * @returns {HTMLElement}
 */
export function partView(part) {
  const type = mediaType(part);
  if (part.content == null && !part.blob) return reference(part);
  const body = preview(part, type);
  const isMedia = IMAGE.test(type) || AUDIO.test(type) || VIDEO.test(type);
  if (isMedia && !part.name) return h("figure.media", null, body);
  return h("section.artifact", { "aria-label": part.name ?? type }, head(part, type), body);
}

/** @param {any} part */
function reference(part) {
  const address = String(part.content_url ?? "");
  const label = part.name ?? part.extra?.title ?? address;
  return h("p.reference", null, link(address, label), label !== address && h("span.muted", null, ` ${address}`), part.content_type && h("span.muted", null, ` · ${part.content_type}`));
}

/**
 * @param {any} part
 * @param {string} type
 */
function head(part, type) {
  const name = fileName(part.name, `file.${ENDINGS[type] ?? "bin"}`);
  const save = h("button.quiet", { type: "button", "aria-label": `Download ${name}` }, "Download");
  save.addEventListener("click", async () => {
    save.disabled = true;
    try {
      const blob = await bytes(part);
      const url = URL.createObjectURL(SAFE_FILE.test(type) ? blob : new Blob([blob], { type: "application/octet-stream" }));
      h("a", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (error) {
      save.after(h("span.error-text", { role: "alert" }, ` ${/** @type {Error} */ (error).message}`));
    }
    save.disabled = false;
  });
  return h("header", null, h("strong", null, part.name ?? name), h("span.muted", null, `${type || "unknown type"} · ${size(byteLength(part))}`), save);
}

/**
 * @param {any} part
 * @param {string} type
 * @returns {HTMLElement | null}
 */
function preview(part, type) {
  if (IMAGE.test(type)) return lazily(part, async (blob) => picture(blob, part.name ?? "Image from the agent"));
  if (AUDIO.test(type)) return lazily(part, async (blob) => h("audio", { controls: true, preload: "metadata", src: URL.createObjectURL(blob) }));
  if (VIDEO.test(type)) return lazily(part, async (blob) => h("video", { controls: true, preload: "metadata", src: URL.createObjectURL(blob) }));
  if (!TEXT.test(type)) return null;
  return lazily(part, async (blob) => textPreview(await blob.text(), type, part.name ?? type), MAX_UNASKED_TEXT_BYTES);
}

/**
 * @param {Blob} blob
 * @param {string} alt
 */
function picture(blob, alt) {
  const url = URL.createObjectURL(blob);
  const image = h("img", { alt, src: url });
  image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  image.addEventListener("error", () => image.replaceWith(h("p.muted", null, `${alt}: not an image that can be shown`)), { once: true });
  return image;
}

/**
 * @param {string} text
 * @param {string} type
 * @param {string} name
 */
async function textPreview(text, type, name) {
  if (type === "text/html") {
    const frame = sandboxed(text, `Document: ${name}`);
    return h("div", null, frame, h("details", null, h("summary", null, "Source"), textBlock(text, `Source of ${name}`)));
  }
  if (type === "text/markdown") {
    const drawn = await draw({ markdown: text });
    if (drawn) {
      decorate(drawn);
      return h("div.text", null, drawn);
    }
  }
  return textBlock(text, name);
}

/**
 * Builds a placeholder that loads its content when it becomes visible. Content above `maxUnasked` bytes waits for a click.
 * @param {any} part
 * @param {(blob: Blob) => Promise<HTMLElement>} show
 * @param {number} maxUnasked
 */
function lazily(part, show, maxUnasked = MAX_UNASKED_BYTES) {
  // `data-hidden` prevents answers to a question until the content is shown: see question.js.
  const place = h("div.lazy", { "data-hidden": true });
  const load = async () => {
    try {
      place.replaceChildren(await show(await bytes(part)));
      place.removeAttribute("data-hidden");
    } catch (error) {
      const retry = h("button.quiet", { type: "button", on: { click: load } }, "Try again");
      place.replaceChildren(h("p.error-text", { role: "alert" }, `The content could not be read: ${/** @type {Error} */ (error).message} `, retry));
    }
    place.classList.remove("lazy");
  };
  if (byteLength(part) > maxUnasked) {
    place.append(h("button.quiet", { type: "button", on: { click: load } }, `Show ${size(byteLength(part))}`));
    return place;
  }
  if (!part.blob) {
    load();
    return place;
  }
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      load();
    },
    { rootMargin: "400px" },
  );
  observer.observe(place);
  return place;
}
