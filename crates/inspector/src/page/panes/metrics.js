// @ts-check
// Parses the server's metrics in the text format of Prometheus, as far as the page draws them.

/** @typedef {{ name: string, labels: Record<string, string>, value: number }} Sample */
/** @typedef {{ name: string, labels: string, buckets: { most: number, count: number }[], count: number, sum: number }} Histogram */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+([^\s]+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** @param {string} text @returns {Sample[]} */
export function samplesOf(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]));
    samples.push({ name: match[1], labels, value: Number(match[3].replace("Inf", "Infinity")) });
  }
  return samples;
}

/** Returns the histograms with at least one observation. @param {Sample[]} samples @returns {Histogram[]} */
export function histogramsOf(samples) {
  /** @type {Map<string, Histogram>} */
  const found = new Map();
  for (const { name, labels, value } of samples) {
    const match = /^(.*)_(bucket|sum|count)$/.exec(name);
    if (!match) continue;
    const { le, ...rest } = labels;
    const values = Object.values(rest);
    const text = rest.operation ?? values.join(" ");
    const key = [match[1], ...values].join(" ");
    const histogram = found.get(key) ?? { name: match[1], labels: text, buckets: [], count: 0, sum: 0 };
    found.set(key, histogram);
    if (match[2] === "bucket") histogram.buckets.push({ most: Number(le === "+Inf" ? Infinity : le), count: value });
    else if (match[2] === "sum") histogram.sum = value;
    else histogram.count = value;
  }
  const histograms = [...found.values()].filter((it) => it.buckets.length > 0 && it.count > 0);
  for (const histogram of histograms) histogram.buckets.sort((one, other) => one.most - other.most);
  return histograms;
}

/** Returns the upper bound of the bucket that reaches this share of the observations. @param {Histogram} histogram @param {number} share */
export function quantile(histogram, share) {
  return histogram.buckets.find((bucket) => bucket.count >= share * histogram.count)?.most ?? Infinity;
}
