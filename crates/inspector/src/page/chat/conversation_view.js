// @ts-check
// A conversation as a column of items. Only changed items are drawn again. Only the last items are in
// the page until the reader requests more. The column follows its end while the reader is there.

import { h } from "../base/dom.js";
import { itemView } from "./item_view.js";
import { plural } from "../base/time.js";

const FIRST_ITEMS = 120;
const MORE_ITEMS = 200;
/** The distance to the end that counts as at the end, in pixels. */
const NEAR_END = 80;

/**
 * Returns the view of an item. An item that cannot be drawn becomes one line and does not affect the others.
 * @param {import("../log/conversation.js").Item} item
 * @param {() => import("./item_view.js").View} draw
 * @returns {import("./item_view.js").View}
 */
function guarded(item, draw) {
  try {
    return draw();
  } catch (error) {
    console.error(error);
    return { element: h("p.note", null, `Event ${item.first} cannot be shown. The timeline has it.`), update() {} };
  }
}

/** @typedef {{ view: import("./item_view.js").View, rev: number, first: number }} Shown */

export class ConversationView {
  constructor() {
    this.earlier = h("button.quiet.earlier", { type: "button", hidden: true, on: { click: () => this.showEarlier() } });
    this.list = h("div.items", { role: "log", "aria-label": "Conversation", "aria-live": "off" });
    this.element = h("div.conversation", { tabindex: 0, role: "region", "aria-label": "Conversation" }, this.earlier, this.list);
    /** @type {Map<string, Shown>} */
    this.shown = new Map();
    this.most = FIRST_ITEMS;
    /** @type {import("../log/conversation.js").Conversation | undefined} */
    this.conversation = undefined;
    this.follows = true;
    this.top = 0;
    this.element.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.element;
      const isNear = scrollHeight - scrollTop - clientHeight < NEAR_END;
      // Only the reader scrolls up. If content has grown meanwhile, the column still follows its end.
      if (isNear || scrollTop < this.top) this.follows = isNear;
      this.top = scrollTop;
    }, { passive: true });
    // Late content, such as images, must not move the end out of view.
    new ResizeObserver(() => this.follow()).observe(this.list);
  }

  /** @param {import("../log/conversation.js").Conversation} conversation */
  show(conversation) {
    this.conversation = conversation;
    const items = conversation.items.slice(-this.most);
    const left = conversation.items.length - items.length;
    this.earlier.hidden = left === 0;
    if (left > 0) this.earlier.textContent = `Show ${plural(Math.min(left, MORE_ITEMS), "earlier item")} of ${left.toLocaleString("en")}`;
    const keys = new Set(items.map((item) => item.key));
    for (const [key, { view }] of this.shown) {
      if (keys.has(key)) continue;
      view.element.remove();
      this.shown.delete(key);
    }
    /** The previous item. The next one belongs after it. @type {Element | null} */
    let before = null;
    for (const item of items) {
      const shown = this.shown.get(item.key);
      let view = shown?.view;
      if (!view || !shown || item.rev < shown.rev) {
        // An older state of a message may have fewer segments, so the message is drawn again.
        shown?.view.element.remove();
        view = guarded(item, () => itemView(item));
      } else if (item.rev !== shown.rev) {
        const known = view;
        view = guarded(item, () => (known.update(item), known));
        if (view !== known) known.element.remove();
      }
      this.shown.set(item.key, { view, rev: item.rev, first: item.first });
      /** @type {Element | null} */
      const place = before ? before.nextElementSibling : this.list.firstElementChild;
      if (place !== view.element) this.list.insertBefore(view.element, place);
      before = view.element;
    }
    this.follow();
  }

  follow() {
    if (this.follows) this.element.scrollTop = this.element.scrollHeight;
  }

  showEarlier() {
    this.most += MORE_ITEMS;
    this.follows = false;
    const before = this.element.scrollHeight;
    if (this.conversation) this.show(this.conversation);
    this.element.scrollTop += this.element.scrollHeight - before;
  }
}
