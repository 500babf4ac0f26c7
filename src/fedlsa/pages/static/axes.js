/* What all pictures of a page share: numbers in print, ticks, scales. A classic script with one global, FedLSAAxes.
   Colours are the variables of colours.css (--ink, --FedLSA, ...); a page may set others on a picture's element. */
"use strict";

/** @typedef {[number, number]} Point */
/** @typedef {{scale?: "linear" | "log", low: number, high: number}} Extent */

var FedLSAAxes = (() => {
  const FONT = "system-ui, sans-serif", SMALL = `12px ${FONT}`;

  /** @param {number} v @param {number} low @param {number} high */
  const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
  /** Of lists too long for Math.min(...list). @param {number[]} list */
  const least = list => list.reduce((a, b) => Math.min(a, b), Infinity);
  /** @param {number[]} list */
  const most = list => list.reduce((a, b) => Math.max(a, b), -Infinity);
  /** @param {unknown} v @returns {v is number} */
  const finite = v => Number.isFinite(v);
  /** @param {unknown} v @returns {v is number} */
  const positive = v => finite(v) && v > 0;
  /** The place of the entry nearest to v. @param {number[]} list @param {number} v */
  const nearest = (list, v) => list.reduce((best, u, i) => Math.abs(u - v) < Math.abs(list[best] - v) ? i : best, 0);

  /** A style for the whole page, as a page that allows no inline styles takes it. @param {string} text */
  function addStyle(text) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(text);
    document.adoptedStyleSheets.push(sheet);
  }

  // ---- numbers in print
  /** @param {number} k */
  const power = k => `10${[...String(k)].map(d => "⁰¹²³⁴⁵⁶⁷⁸⁹"[+d] || "⁻").join("")}`;
  /** Three digits: 12 300, 0.0123, 1.23 · 10⁻⁵. @param {number} v @param {number} [digits]
      @param {number} [large] from which on there is a power of ten */
  function number(v, digits = 3, large = 999_500) {
    if (!finite(v)) return v > 0 ? "∞" : "–";
    const size = Math.abs(v);
    if (size && (size < 9.995e-4 || size >= large)) {
      const [front, k] = v.toExponential(digits - 1).split("e");
      return `${+front === 1 ? "" : `${+front}\u2009·\u2009`}${power(+k)}`;
    }
    const [whole, part] = String(+v.toPrecision(digits)).split(".");
    return whole.replace(/\B(?=(\d{3})+$)/g, "\u2009") + (part ? `.${part}` : "");
  }

  // ---- ticks
  /** Round values from low to high, about `count` steps. @param {number} low @param {number} high @param {number} count */
  function evenly(low, high, count) {
    const raw = (high - low) / count || 1, unit = 10 ** Math.floor(Math.log10(raw));
    const step = unit * (/** @type {number} */ ([1, 2, 5, 10].find(s => s * unit >= raw * 0.999)));
    const first = Math.ceil(low / step - 1e-9), many = Math.floor(high / step + 1e-9) - first + 1;
    return Array.from({length: many}, (_, i) => +((first + i) * step).toPrecision(12));
  }
  /** Of a logarithmic axis: whole decades; where there are few, 2 and 5 or 3 between them; else round values.
      @param {number} low @param {number} high @param {number} count */
  function decades(low, high, count) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    /** @param {number[]} digits @param {number} every */
    const inside = (digits, every) => Array.from({length: last - first + 1}, (_, i) => first + i)
      .filter(k => digits.length > 1 || k % every === 0).flatMap(k => digits.map(m => +`${m}e${k}`))
      .filter(v => v >= low * 0.999999 && v <= high * 1.000001);
    const tries = [...inside([1], 1).length > 2 ? [] : [inside([1, 2, 5], 1), inside([1, 3], 1)],
      ...Array.from({length: Math.max(1, last - first)}, (_, i) => inside([1], i + 1))];
    const found = tries.find(ticks => ticks.length > 1 && ticks.length <= count);
    if (found) return found;
    return evenly(low, high, count);
  }

  // ---- scales
  /** From values to places: `at` and back, `value`; what is no number, or below 0 on a logarithmic axis, has no place.
      @param {Extent} range @param {number} from @param {number} to */
  function scale({scale: kind = "linear", low, high}, from, to) {
    const bend = kind === "log" ? Math.log10 : (/** @type {number} */ v) => v, [l, h] = [bend(low), bend(high)];
    return {
      at: (/** @type {number | null} */ v) => v === null || !finite(v) || kind === "log" && v < 0 ? NaN
        : from + (to - from) * clamp((bend(v) - l) / (h - l || 1), -9, 10),
      value: (/** @type {number} */ place) => {
        const v = l + (h - l) * (place - from) / (to - from);
        return kind === "log" ? 10 ** v : v;
      },
      ticks: (/** @type {number} */ count) => (kind === "log" ? decades : evenly)(low, high, count),
    };
  }

  /** y at x for increasing xs, straight between its points. @param {number[]} xs @param {number[]} ys @param {number} x */
  function interpolate(xs, ys, x) {
    let i = 0;  // the first that is not below x, found by halves
    for (let end = xs.length; i < end;) {
      const half = (i + end) >> 1;
      if (xs[half] >= x) end = half; else i = half + 1;
    }
    if (i === xs.length) return ys[i - 1];
    if (i === 0 || xs[i] === x) return ys[i];
    return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
  }

  const paper = document.createElement("canvas").getContext("2d");
  /** Pixels that words in small type take. @param {string} words */
  function widthOf(words) {
    if (!paper) return 7 * words.length;
    paper.font = SMALL;
    return paper.measureText(words).width;
  }

  return {FONT, SMALL, addStyle, clamp, least, most, finite, positive, nearest, power, number, evenly, decades, scale,
    interpolate, widthOf};
})();
