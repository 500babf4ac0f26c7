// What both pages share. Whatever others wrote goes into the page as text, never as markup.

const PERIOD = 2000; // milliseconds between two looks
const PATIENCE = 10000; // milliseconds that an answer may take

/** An element of the page, which has it. @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** @typedef {Node | string | number} Child */

/** A new element: its class, and children that are elements or text. @template {keyof HTMLElementTagNameMap} K
    @param {K} tag @param {string} [name] @param {Child[]} children */
export function make(tag, name = "", ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(.../** @type {(Node | string)[]} */ (children));
  return element;
}

/** Replace what an element holds, unless it is the same already: what a reader has marked stays marked.
    @param {Element} element @param {Child[]} children */
export function fill(element, ...children) {
  const next = /** @type {Element} */ (element.cloneNode(false));
  next.append(.../** @type {(Node | string)[]} */ (children));
  if (!element.isEqualNode(next)) element.replaceChildren(...next.childNodes);
}

/** @param {HTMLElement} element @param {boolean} shown */
export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

/** A pill with a word in it; kind: good, fair, bad or calm. @param {HTMLElement} element @param {string} word
    @param {string} kind */
export function pill(element, word, kind) {
  fill(element, word);
  element.className = `pill ${kind}`;
}

/** A card: what it is, its value, and a smaller line. @param {string} label @param {Child} value @param {string} [more] */
export function card(label, value, more = "") {
  return make("div", "card", make("dt", "", label), make("dd", "", make("b", "", value), make("span", "soft", more)));
}

/** @param {number} count */
export function bytes(count) {
  for (const unit of ["B", "kB", "MB"]) {
    if (count < 1000) return `${Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
  return `${Number(count.toPrecision(3))} GB`;
}

/** A number as all pages print it; a dash where there is none. @param {number | null} value */
export const brief = (value) => (value === null ? "–" : FedLSAAxes.number(value));

/** A time of day; with the date where it is not today. @param {number | null} seconds */
export function clock(seconds) {
  if (seconds === null) return "";
  const at = new Date(1000 * seconds), today = new Date().toDateString() === at.toDateString();
  const text = today ? at.toLocaleTimeString("en-GB") : `${at.toLocaleDateString("en-CA")} ${at.toLocaleTimeString("en-GB")}`;
  const element = make("time", "", text);
  element.dateTime = at.toISOString();
  return element;
}

/** A bar for a budget: how much is left of it, in words beside it. @param {number} left @param {number} total */
export function budget(left, total) {
  const bar = make("meter");
  bar.min = 0;
  bar.max = total;
  bar.low = total / 10;
  bar.optimum = total;
  bar.value = Math.max(0, left);
  bar.setAttribute("aria-label", "privacy budget left");
  return make("span", "budget", bar, ` ${brief(Math.max(0, left))} of ${brief(total)}`);
}

/** Ask for the state again and again, and draw it; say so where nobody answers. @param {(now: any) => void} draw */
export async function watch(draw) {
  for (;;) {
    const lost = byId("lost");
    try {
      const answer = await fetch("/state.json", { signal: AbortSignal.timeout(PATIENCE), cache: "no-store" });
      if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
      draw(await answer.json());
      show(lost, false);
      fill(byId("updated"), `Updated ${new Date().toLocaleTimeString("en-GB")}.`);
    } catch (error) {
      console.warn(error);
      fill(lost, "No answer from the program behind this page: what stands here is old.");
      show(lost, true);
      pill(byId("status"), "no answer", "bad");
    }
    await new Promise((done) => setTimeout(done, PERIOD));
  }
}
