// A curve on a logarithmic scale, drawn as SVG: what was estimated, what was predicted, and the accuracy asked for.

const SPACE = "http://www.w3.org/2000/svg";
const HEIGHT = 260, LEFT = 56, RIGHT = 14, TOP = 12, BOTTOM = 40;

function svg(tag, attributes, text) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** About `count` round numbers from 0 to `most`. */
function steps(most, count) {
  const rough = Math.max(1, most / count), unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= rough);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, k) => k * step);
}

function exponent(power) {
  return Math.abs(power) <= 2 ? String(Number((10 ** power).toPrecision(1))) : `1e${power}`;
}

/** The drawing. lines: [{name, points: [[round, value], ...]}]; target: a level, or null; width: in pixels. */
export function chart(lines, target, width, label) {
  const drawn = lines.map((line) => ({ ...line, points: line.points.filter((p) => p[1] > 0) }));
  const values = drawn.flatMap((line) => line.points.map((p) => Math.log10(p[1])));
  if (target > 0) values.push(Math.log10(target));
  const most = Math.max(1, ...drawn.flatMap((line) => line.points.map((p) => p[0])));
  let low = Math.floor(Math.min(...values) - 0.05), high = Math.ceil(Math.max(...values) + 0.05);
  if (high - low < 1) high = low + 1;
  const x = (k) => LEFT + ((width - LEFT - RIGHT) * k) / most;
  const y = (value) => TOP + ((HEIGHT - TOP - BOTTOM) * (high - Math.log10(value))) / (high - low);
  const root = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label });
  const stride = Math.ceil((high - low) / 6);
  for (let power = low; power <= high; power += stride) {
    const at = y(10 ** power);
    root.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, class: "grid" }));
    root.append(svg("text", { x: LEFT - 8, y: at + 4, class: "end" }, exponent(power)));
  }
  for (const k of steps(most, width < 500 ? 4 : 8)) root.append(svg("text", { x: x(k), y: HEIGHT - BOTTOM + 18, class: "middle" }, k));
  root.append(svg("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 4, class: "middle" }, "rounds averaged"));
  if (target > 0) root.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(target), y2: y(target), class: "target" }));
  for (const { name, points } of drawn) {
    const path = points.map((p, k) => `${k ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
    root.append(svg("path", { d: path, class: `curve ${name}` }));
    if (points.length === 1) root.append(svg("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 3, class: `dot ${name}` }));
  }
  return root;
}

/** The same line as a key beside words. */
export function key(name) {
  const root = svg("svg", { viewBox: "0 0 28 10", width: 28, height: 10, "aria-hidden": "true" });
  root.append(svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, class: name === "target" ? "target" : `curve ${name}` }));
  return root;
}
