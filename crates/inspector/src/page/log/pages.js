// @ts-check
// Events around the reader's position: aligned pages, fetched by cursor. Only a few are kept.

import { get, segment } from "../base/api.js";

export const PAGE_EVENTS = 250;
const MAX_PAGES = 24;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** @typedef {{ events: Map<number, any>, characters: number }} Page */

export class Pages {
  /** @param {string} threadId */
  constructor(threadId) {
    this.threadId = threadId;
    /** In order of their last use, the oldest first. @type {Map<number, Page>} */
    this.pages = new Map();
    /** @type {Map<number, Promise<Page>>} */
    this.fetches = new Map();
    this.characters = 0;
  }

  /**
   * Keeps an event from the stream, if it continues a kept page or begins a page.
   * @param {any} event
   * @param {number} characters
   */
  add(event, characters) {
    const place = Math.floor((event.number - 1) / PAGE_EVENTS);
    let page = this.pages.get(place);
    if (!page) {
      if ((event.number - 1) % PAGE_EVENTS !== 0) return;
      page = { events: new Map(), characters: 0 };
      this.pages.set(place, page);
    }
    page.events.set(event.number, event);
    page.characters += characters;
    this.characters += characters;
    this.evict(place);
  }

  /** @param {number} kept */
  evict(kept) {
    for (const [place, page] of this.pages) {
      if (this.pages.size <= MAX_PAGES && this.characters <= MAX_CHARACTERS) return;
      if (place === kept) continue;
      this.pages.delete(place);
      this.characters -= page.characters;
    }
  }

  /** Returns the event with this number, if its page is kept. @param {number} number */
  find(number) {
    const place = Math.floor((number - 1) / PAGE_EVENTS);
    const page = this.pages.get(place);
    if (!page) return undefined;
    this.pages.delete(place);
    this.pages.set(place, page);
    return page.events.get(number);
  }

  /** @param {number} place */
  async fetch(place) {
    const after = place * PAGE_EVENTS;
    const text = await get(`threads/${segment(this.threadId)}/events?after=${after}&limit=${PAGE_EVENTS}`);
    const events = new Map();
    let characters = 0;
    for (const event of text.items) {
      if (event.number > after + PAGE_EVENTS) break;
      events.set(event.number, event);
      characters += JSON.stringify(event).length;
    }
    const page = { events, characters };
    this.characters += characters - (this.pages.get(place)?.characters ?? 0);
    this.pages.set(place, page);
    this.evict(place);
    return page;
  }

  /**
   * Fetches the page of this number unless it is kept. Sends one request per page at a time.
   * @param {number} number
   * @returns {Promise<Page>}
   */
  async need(number) {
    const place = Math.floor((number - 1) / PAGE_EVENTS);
    const page = this.pages.get(place);
    if (page?.events.has(number)) return page;
    let fetching = this.fetches.get(place);
    if (!fetching) {
      fetching = this.fetch(place).finally(() => this.fetches.delete(place));
      this.fetches.set(place, fetching);
    }
    return fetching;
  }
}
