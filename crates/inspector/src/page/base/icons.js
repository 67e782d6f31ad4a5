// @ts-check

import { svg } from "./dom.js";

const PATHS = /** @type {Record<string, string>} */ ({
  chat: "M4 5.5h16v10H10l-4.5 4v-4H4z",
  inbox: "M4 13.5 6.5 5h11l2.500 8.500v5.500H4zM4 13.500h4.500l1.500 2.500h4l1.500-2.500H20",
  agents: "M12 4v3M7 7h10v8H7zM9.500 10.500v1M14.500 10.500v1M5 20c1-3 4-3.500 7-3.500s6 .5 7 3.500",
  status: "M4 12h4l2.500-6 3.500 12 2.500-6H20",
  api: "M9 5H7.500L6 6.500v4L4 12l2 1.500v4L7.500 19H9M15 5h1.500L18 6.500v4l2 1.500-2 1.500v4L16.500 19H15",
  plus: "M12 5v14M5 12h14",
  clip: "m8 12.500 5.500-5.500a2.800 2.800 0 0 1 4 4L10 18.500a4.500 4.500 0 0 1-6.400-6.400L11 4.700",
  send: "M12 19V6M6 11.500 12 5.500l6 6",
  stop: "M7 7h10v10H7z",
  back: "M15 5l-7 7 7 7",
  gear: "M4 7h9M17 7h3M4 17h3M11 17h9M13 4.500v5M7 14.500v5",
  close: "M6 6l12 12M18 6 6 18",
});

/** @param {string} name */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" }, svg("path", { d: PATHS[name] }));
}
