// @ts-check
// Places of the page as URL fragments: `#/threads/ID?view=timeline`. A section stays open while the reader moves inside it.

/** @typedef {{ path: string[], query: URLSearchParams }} Place */
/** @typedef {{ show(place: Place): void }} Section */
/** @typedef {(root: HTMLElement, signal: AbortSignal) => Section} OpenSection */

/** @returns {Place} */
export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decodeSegment), query: new URLSearchParams(query ?? "") };
}

/** @param {string} text */
function decodeSegment(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * @param {string[]} path
 * @param {Record<string, string | number | undefined>} [query]
 */
export function placeOf(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [name, String(value)]);
  const text = new URLSearchParams(pairs).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/**
 * Goes to a place. With `replace`, adds no entry to the history.
 * @param {string} place
 * @param {{ replace?: boolean }} [options]
 */
export function go(place, { replace = false } = {}) {
  if (location.hash === place) return;
  if (!replace) location.hash = place;
  else {
    history.replaceState(null, "", place);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

/** Changes members of the current query. @param {Record<string, string | number | undefined>} changes */
export function setQuery(changes) {
  const { path, query } = here();
  go(placeOf(path, { ...Object.fromEntries(query), ...changes }), { replace: true });
}

/**
 * @param {HTMLElement} root
 * @param {Record<string, OpenSection>} sections by the first segment of the path
 * @param {string} home
 * @param {(name: string) => void} onSection
 */
export function startRouter(root, sections, home, onSection) {
  let open = "";
  /** @type {AbortController | undefined} */
  let life;
  /** @type {Section | undefined} */
  let section;
  const show = () => {
    const place = here();
    let name = place.path[0] ?? "";
    if (name === "new") name = "threads";
    if (!Object.hasOwn(sections, name)) {
      go(home, { replace: true });
      return;
    }
    if (name !== open) {
      life?.abort();
      life = new AbortController();
      root.replaceChildren();
      root.scrollTop = 0;
      open = name;
      section = sections[name](root, life.signal);
    }
    onSection(name);
    section?.show(place);
  };
  addEventListener("hashchange", show);
  show();
}
