// @ts-check
// The timeline's data of every event, in as few bytes as possible: 13 per event.

import { milliseconds } from "../base/time.js";

const FIRST_CAPACITY = 1024;

export class Columns {
  constructor() {
    this.capacity = FIRST_CAPACITY;
    this.types = new Uint8Array(this.capacity);
    this.runs = new Uint32Array(this.capacity);
    this.times = new Float64Array(this.capacity);
    /** The highest event number. */
    this.last = 0;
    /** 0 means a removed event. */
    this.typeNames = [""];
    /** 0 means that the event belongs to no run. */
    this.runIds = [""];
    /** @type {Map<string, number>} */
    this.runPlaces = new Map([["", 0]]);
    /** @type {Map<string, number>} */
    this.typePlaces = new Map();
  }

  /** @param {any} event */
  add(event) {
    const number = event.number;
    if (number >= this.capacity) this.grow(number);
    this.types[number] = this.place(this.typePlaces, this.typeNames, event.type);
    this.runs[number] = event.run_id ? this.place(this.runPlaces, this.runIds, event.run_id) : 0;
    this.times[number] = milliseconds(event.at);
    this.last = Math.max(this.last, number);
  }

  /**
   * @param {Map<string, number>} places
   * @param {string[]} names
   * @param {string} name
   */
  place(places, names, name) {
    let place = places.get(name);
    if (place === undefined) {
      // There are few types. A type beyond the column's range only loses its filter.
      place = Math.min(names.length, names === this.typeNames ? 255 : Number.MAX_SAFE_INTEGER);
      names[place] = name;
      places.set(name, place);
    }
    return place;
  }

  /** @param {number} number */
  grow(number) {
    while (this.capacity <= number) this.capacity *= 2;
    const types = new Uint8Array(this.capacity);
    const runs = new Uint32Array(this.capacity);
    const times = new Float64Array(this.capacity);
    types.set(this.types);
    runs.set(this.runs);
    times.set(this.times);
    Object.assign(this, { types, runs, times });
  }

  /** Returns the time between the previous event and this one, in milliseconds. @param {number} number */
  gap(number) {
    let before = number - 1;
    while (before > 0 && this.types[before] === 0) before--;
    return before > 0 && this.types[number] !== 0 ? Math.max(0, this.times[number] - this.times[before]) : 0;
  }

  /**
   * Returns the numbers of the events of a type and a run; `undefined` for all events.
   * @param {string} type
   * @param {string} run
   */
  matching(type, run) {
    if (!type && !run) return undefined;
    const wantedRun = this.runPlaces.get(run);
    const isWanted = this.typeNames.map((name) => name !== "" && (name === type || name.startsWith(`${type}.`) || !type));
    const numbers = [];
    for (let number = 1; number <= this.last; number++) {
      if (isWanted[this.types[number]] && (!run || this.runs[number] === wantedRun)) numbers.push(number);
    }
    return numbers;
  }
}
