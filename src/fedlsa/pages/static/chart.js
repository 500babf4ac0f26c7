/* One chart as SVG, as wide as its element. A classic script with one global, FedLSAChart; it needs axes.js.

   FedLSAChart.draw(element, chart, options)   draws, and draws again when the element's width or the data change
   FedLSAChart.legend(element, charts)         every label of some charts once, beside how its line is drawn

   A chart is the JSON of figures/chart_data.py; a page may write one itself. Its title is the page's to show.
   Values stand under the pointer; with the focus on a chart, arrows, Home, End and Escape go over them. */
"use strict";

/** @typedef {{label?: string, scale?: "linear" | "log", low?: number, high?: number, ticks?: number[]}} AxisData
      without low and high: what holds all lines */
/** @typedef {object} LineData
    @property {number[]} [x] by default that of the line before
    @property {(number | null)[]} y null: a gap
    @property {string} [label] its name in the legend
    @property {string} [name] under the pointer, by default its label
    @property {string} [colour] "#rrggbb", or the name of a colour of axes.js: a method's, "ink", "soft"
    @property {[(number | null)[], (number | null)[]]} [band] the lower and the upper edge of a tint
    @property {(number | null)[]} [deviation] half the length of error bars
    @property {boolean} [steps] y holds until the next x
    @property {string} [dash] of DASHES, or "none"
    @property {string} [marker] of MARKERS
    @property {number} [width]
    @property {number} [size] of its markers
    @property {boolean} [hollow]
    @property {number} [opacity]
    @property {number} [layer] higher lies on top */
/** @typedef {{title?: string, x: AxisData, y: AxisData, corner?: string, lines: LineData[]}} ChartData */
/** @typedef {{height?: number, label?: string, plain?: boolean}} ChartOptions
      height: in pixels; label: what a screen reader says of it; plain: the curves alone, for a small preview */

var FedLSAChart = (() => {
  const {addStyle, clamp, finite, least, most, nearest, number, positive, scale, widthOf} = FedLSAAxes;
  /** @type {Record<string, string>} */
  const DASHES = {dashed: "7 4", dotted: "1.5 3.5", dashdot: "9 3 1.5 3", dashdotdot: "9 3 1.5 3 1.5 3"};
  /** Around (0, 0), with r for half its width. @type {Record<string, (r: number) => string>} */
  const MARKERS = {
    circle: r => `m${-r},0a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0`,
    cross: r => `m${-r},${-r}l${2 * r},${2 * r}m${-2 * r},0l${2 * r},${-2 * r}`,
    square: r => `m${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
    diamond: r => `m0,${-r}l${r},${r} ${-r},${r} ${-r},${-r}z`,
    triangle: r => `m0,${-r}l${r},${2 * r}h${-2 * r}z`,
    "triangle down": r => `m0,${r}l${r},${-2 * r}h${-2 * r}z`,
  };
  const TOP = 24, BOTTOM = 40, RIGHT = 14, REACH = 4;  // pixels: around the axes; as far from the pointer are values that are shown
  addStyle(`
    :where(.fc) { display: block; min-width: 0; } .fc > svg { display: block; width: 100%; height: auto; }
    .fc svg[tabindex] { cursor: crosshair; touch-action: pan-y; }
    .fc text { font: 12px system-ui, sans-serif; fill: var(--ink); } .fc .fc-name { fill: var(--soft); }
    .fc .fc-grid { fill: none; stroke: var(--faint); } .fc .fc-cursor { stroke: var(--ink); }
    .fc g, .fc-legend svg, .fc-tip i { --c: var(--own); }
    .fc-line, .fc-mark { stroke: var(--c); fill: none; stroke-linejoin: round; } .fc-mark { stroke-width: 1.3; }
    .fc-mark.fc-full, .fc-band { fill: var(--c); }
    .fc-legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; color: var(--ink); }
    .fc-legend svg { margin-right: 0.4em; vertical-align: -0.05em; overflow: visible; }
    .fc-tip { position: fixed; z-index: 9; pointer-events: none; max-width: min(22rem, 95vw); padding: 0.3rem 0.6rem;
      border: 1px solid var(--soft); border-radius: 0.3rem; background: var(--paper); color: var(--ink);
      font: 13px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
    .fc-tip b { display: block; }
    .fc-tip span { display: flex; justify-content: space-between; gap: 1rem; }
    .fc-tip :is(i, em) { font-style: normal; } .fc-tip i { border-left: 4px solid var(--c); padding-left: 0.4em; }
    @media screen and (prefers-color-scheme: dark) { :is(.fc g, .fc-legend svg, .fc-tip i).fc-own {
      --c: color-mix(in oklab, var(--own) 65%, white); } }
    @media print { .fc-tip, .fc-cursor { display: none; } }`);

  /** @param {string} tag @param {Record<string, string | number>} attributes @param {(Node | string)[]} children */
  function svg(tag, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
  }
  /** A line's colour, mixed with white by night where it is its own. @template {SVGElement | HTMLElement} E
      @param {E} element @param {LineData} line */
  function tint(element, {colour = "ink"}) {
    element.classList.toggle("fc-own", colour.startsWith("#"));
    element.style.setProperty("--own", colour.startsWith("#") ? colour : `var(--${colour}, var(--ink))`);
    return element;
  }
  /** @param {number} v */
  const fine = v => Math.round(10 * v) / 10;
  /** Straight lines through points, with gaps; a dot where one stands alone. @param {Point[]} points */
  function path(points) {
    const there = points.map(p => finite(p[0]) && finite(p[1]));
    return points.map(([x, y], i) => !there[i] ? "" : there[i - 1] ? `L${fine(x)},${fine(y)}`
      : `M${fine(x)},${fine(y)}${there[i + 1] ? "" : "h0"}`).join("");
  }

  /** An axis with its ends. @param {AxisData} axis @param {(number | null)[]} values all that stands on it */
  function ends({scale: kind, low, high}, values) {
    const shown = /** @type {number[]} */ (values.filter(kind === "log" ? positive : finite));
    let [l, h] = shown.length ? [least(shown), most(shown)] : kind === "log" ? [0.1, 10] : [0, 1];
    const room = kind === "log" ? Math.max((h / l) ** 0.05, 1.05) : l === h ? 1 : 0;
    if (kind === "log") [l, h] = [l / room, h * room];
    return {scale: kind, low: low ?? l, high: high ?? h + (kind === "log" ? 0 : room)};
  }

  /** What an element shows.
      @typedef {{x: number, y: number, at: number, value: number, more: string}} Mark a point: its place and its values
      @typedef {{line: LineData, name: string, marks: Mark[], level: boolean}} Curve
      @typedef {{chart: ChartData, options: ChartOptions, text: string, width: number, curves: Curve[], places: number[],
        box: {left: number, top: number, bottom: number}, at: number | null}} Shown */
  /** @type {WeakMap<Element, Shown>} */
  const known = new WeakMap();
  const sizes = new ResizeObserver(entries => entries.forEach(({target}) => paint(target)));

  /** @param {Element} element @param {ChartData} chart @param {ChartOptions} [options] */
  function draw(element, chart, options = {}) {
    const text = JSON.stringify([chart, options]), old = known.get(element);
    if (old?.text === text) return;
    const box = {left: 0, top: 0, bottom: 0};
    known.set(element, {chart, options, text, width: 0, curves: [], places: [], box, at: null});
    element.classList.add("fc");
    sizes.observe(element);
    paint(element);
    if (old && old.at !== null && current === element) show(element, old.at);  // the pointer still rests on it
  }

  /** @param {Element} element */
  function paint(element) {
    const shown = /** @type {Shown} */ (known.get(element)), width = element.clientWidth;
    if (!width || width === shown.width) return;  // drawn when it comes into sight
    const {chart, options} = shown, {plain = false} = options, parts = [];
    const height = options.height ?? Math.round(clamp(0.7 * width, plain ? 40 : 190, 340));
    const all = withX(chart.lines), layer = (/** @type {LineData} */ line) => line.layer ?? 4;
    const x = ends(chart.x, all.flatMap(line => line.x)), values = all.flatMap(line => [line.y, ...line.band || []]).flat();
    const y = ends(chart.y, values);
    const [top, bottom] = plain ? [3, height - 3] : [TOP, height - BOTTOM], Y = scale(y, bottom, top);
    const heights = plain ? [] : Y.ticks(clamp(Math.floor((bottom - top) / 30), 3, 7)).map(v => ({v, text: number(v, 6, 99_999)}));
    const left = plain ? 3 : Math.ceil(Math.max(18, ...heights.map(tick => widthOf(tick.text)))) + 10;
    const right = width - (plain ? 3 : RIGHT), X = scale(x, left, right);
    parts.push(svg("path", {class: "fc-grid", d: `M${left},${top}V${bottom}H${right}`}));
    for (const {v, text} of heights) {
      parts.push(svg("path", {class: "fc-grid", d: `M${left},${fine(Y.at(v))}H${right}`}));
      parts.push(svg("text", {x: left - 6, y: fine(Y.at(v)) + 4, "text-anchor": "end"}, text));
    }
    if (!plain) {
      for (const [v, text] of fitting(X, chart.x.ticks, right - left)) {
        const at = clamp(X.at(v), widthOf(text) / 2, width - widthOf(text) / 2);
        parts.push(svg("path", {class: "fc-grid", d: `M${fine(X.at(v))},${bottom}v4`}));
        parts.push(svg("text", {x: fine(at), y: bottom + 17, "text-anchor": "middle"}, text));
      }
      const middle = {class: "fc-name", x: fine((left + right) / 2), y: height - 5, "text-anchor": "middle"};
      parts.push(svg("text", middle, chart.x.label || ""), svg("text", {class: "fc-name", x: 2, y: 13}, chart.y.label || ""));
    }
    const spill = plain ? 2 : 5, [w, h] = [right - left + 2 * spill, bottom - top + 2 * spill];  // marks on an edge are whole
    const inside = svg("svg", {x: left - spill, y: top - spill, width: w, height: h,
      viewBox: `${left - spill} ${top - spill} ${w} ${h}`});
    shown.curves = [];
    for (const line of [...all].sort((a, b) => layer(a) - layer(b))) {
      const marks = line.y.map((v, i) => ({x: X.at(line.x[i]), y: Y.at(v), at: line.x[i], value: v ?? NaN,
        more: finite(line.deviation?.[i]) ? ` ± ${number(line.deviation[i], 2)}` : ""}));
      inside.append(drawn(line, marks, X, Y, y.low));
      const level = line.y.length > 1 && line.y.every(v => v === line.y[0]);
      const name = line.name || line.label || "";
      if (name) shown.curves.push({line, name, level, marks: marks.filter(m => finite(m.x) && finite(m.y))});
    }
    if (chart.corner && !plain) inside.append(svg("text", {x: left + 6, y: bottom - 8}, chart.corner));
    const label = options.label || `${chart.title || chart.y.label || "chart"}: arrow keys read values`;
    /** @type {Record<string, string | number>} */
    const reads = plain ? {"aria-hidden": "true"} : {role: "img", tabindex: 0, "aria-label": label};
    const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, ...reads}, ...parts, inside);
    const focused = element.contains(document.activeElement);
    element.replaceChildren(picture);
    const places = new Set(shown.curves.flatMap(curve => curve.marks.map(mark => mark.x)));
    Object.assign(shown, {width, places: [...places].sort((a, b) => a - b), box: {left, top, bottom}, at: null});
    if (plain) return;
    listen(element, /** @type {SVGSVGElement} */ (picture));
    if (focused) /** @type {SVGSVGElement} */ (picture).focus();
  }

  /** Every line with an x of its own. @param {LineData[]} lines @returns {(LineData & {x: number[]})[]} */
  function withX(lines) {
    /** @type {number[]} */
    let x = [];
    return lines.map(line => ({...line, x: x = line.x ?? x}));
  }

  /** As many ticks as have room beside each other. @param {ReturnType<typeof scale>} X @param {number[] | undefined} given
      @param {number} width @returns {[number, string][]} */
  function fitting(X, given, width) {
    for (let count = clamp(Math.floor(width / 45), 2, 9); ; count--) {
      const values = given && given.length <= count ? given : X.ticks(count);
      const found = values.map(v => /** @type {[number, string]} */ ([v, number(v, 6)]));
      const near = found.some(([v, text], i) => i && X.at(v) - X.at(found[i - 1][0])
        < (widthOf(text) + widthOf(found[i - 1][1])) / 2 + 8);
      if (!near || count <= 1) return found;
    }
  }

  /** @param {LineData & {x: number[]}} line @param {Mark[]} marks @param {ReturnType<typeof scale>} X
      @param {ReturnType<typeof scale>} Y @param {number} low */
  function drawn(line, marks, X, Y, low) {
    const {band, dash = "", marker = "", opacity = 1, width = 1.8, deviation} = line;
    const group = tint(svg("g", {"data-name": line.name || line.label || ""}), line);
    if (band) {
      const [under, over] = band.map(edge => edge.map((v, i) => /** @type {Point} */ ([X.at(line.x[i]), Y.at(v)])));
      const d = path([...over, ...under.reverse()].filter(p => finite(p[0]) && finite(p[1])));
      if (d) group.append(svg("path", {class: "fc-band", d: `${d}z`, opacity: dash === "none" ? opacity : 0.2}));
    }
    const bars = (deviation || []).map((error, i) => {
      const {x, value} = marks[i], [from, to] = [Y.at(Math.max(value - (error ?? NaN), low)), Y.at(value + (error ?? NaN))];
      return finite(from) && finite(to) ? `M${fine(x)},${fine(from)}V${fine(to)}m-3,0h6M${fine(x - 3)},${fine(from)}h6` : "";
    }).join("");
    if (bars) group.append(svg("path", {class: "fc-line", d: bars, "stroke-width": 1.3}));
    /** @type {Point[]} */
    const points = marks.flatMap(({x, y}, i) => line.steps && i ? [[x, marks[i - 1].y], [x, y]] : [[x, y]]);
    const d = dash === "none" ? "" : path(points);
    if (d) group.append(svg("path", {class: "fc-line", d, opacity, "stroke-width": width,
      ...DASHES[dash] ? {"stroke-dasharray": DASHES[dash]} : {"stroke-linecap": "round"}}));
    const shape = marker && marks.filter(({x, y}) => finite(x) && finite(y)).map(({x, y}) =>
      `M${fine(x)},${fine(y)}${MARKERS[marker](0.6 * (line.size ?? 6))}`).join("");
    if (shape) group.append(svg("path", {class: line.hollow ? "fc-mark" : "fc-mark fc-full", d: shape, opacity}));
    return group;
  }

  // ---- values under the pointer, and by keys
  const tip = document.createElement("div");
  tip.className = "fc fc-tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  /** @type {Element | null} */
  let current = null;  // the element whose values are shown

  /** @param {Element} element @param {number} at a place @param {Point} [near] the pointer */
  function show(element, at, near) {
    const shown = /** @type {Shown} */ (known.get(element)), {box, chart} = shown;
    const picture = /** @type {SVGSVGElement} */ (element.firstElementChild), r = picture.getBoundingClientRect();
    if (current && current !== element) hide();
    const rows = shown.curves.map(({line, name, level, marks}) => {
      const mark = marks[nearest(marks.map(m => m.x), at)];
      if (!mark || !level && Math.abs(mark.x - at) > REACH) return null;
      const row = document.createElement("span"), value = document.createElement("em");
      const inside = mark.y >= box.top - 1 && mark.y <= box.bottom + 1;
      row.append(tint(document.createElement("i"), line), value);
      /** @type {Element} */ (row.firstChild).append(name);
      value.append(inside ? number(mark.value) + mark.more : `${number(mark.value)}, outside`);
      return {row, away: Math.abs(mark.x - at), x: mark.at};
    }).filter(row => row !== null);
    if (!rows.length) return hide();
    const head = document.createElement("b"), first = rows.reduce((a, b) => b.away < a.away ? b : a);
    head.append(`${chart.x.label ? `${chart.x.label}: ` : ""}${number(first.x, 4)}`);
    tip.replaceChildren(head, ...rows.map(({row}) => row));
    if (!tip.isConnected) document.body.append(tip);
    tip.hidden = false;
    let cursor = picture.querySelector(".fc-cursor");
    if (!cursor) picture.append(cursor = svg("path", {class: "fc-cursor"}));
    cursor.setAttribute("d", `M${fine(at)},${box.top}V${box.bottom}`);
    const [x, y] = near || [r.left + at * r.width / shown.width, r.top + r.height / 2];
    tip.style.left = `${clamp(x + 14, 4, Math.max(4, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, y + 14 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 14)}px`;
    [shown.at, current] = [at, element];
  }
  function hide() {
    tip.hidden = true;
    const shown = current && known.get(current);
    if (shown) shown.at = null;
    current?.querySelector(".fc-cursor")?.remove();
    current = null;
  }
  /** @param {Element} element @param {SVGSVGElement} picture */
  function listen(element, picture) {
    const shown = /** @type {Shown} */ (known.get(element)), {places} = shown;
    /** @param {PointerEvent} event */
    const look = event => {
      const r = picture.getBoundingClientRect(), at = (event.clientX - r.left) / r.width * shown.width;
      if (places.length) show(element, places[nearest(places, at)], [event.clientX, event.clientY]);
    };
    picture.onpointerdown = picture.onpointermove = look;
    picture.onpointerleave = event => { if (event.pointerType === "mouse") hide(); };  // a finger always leaves
    picture.onblur = hide;
    picture.onkeydown = event => {
      const last = places.length - 1, now = current === element && shown.at !== null ? places.indexOf(shown.at) : -1;
      const to = {ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: last}[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined || last < 0) return;
      event.preventDefault();
      show(element, places[clamp(to, 0, last)]);
    };
  }

  /** @param {Element} element @param {ChartData[]} charts */
  function legend(element, charts) {
    /** @type {Map<string, LineData>} */
    const entries = new Map();
    for (const line of charts.flatMap(chart => chart.lines))
      if (line.label && !entries.has(line.label)) entries.set(line.label, line);
    element.classList.add("fc", "fc-legend");
    element.replaceChildren(...[...entries].map(([label, line]) => {
      const {dash = "", marker = "", width = 1.8, size = 6} = line, entry = document.createElement("span");
      const key = tint(svg("svg", {width: 28, height: 12, "aria-hidden": "true"}), line);
      if (dash !== "none") key.append(svg("path", {class: "fc-line", d: "M1,6H27", "stroke-width": width,
        ...DASHES[dash] && {"stroke-dasharray": DASHES[dash]}}));
      else if (!marker) key.append(svg("path", {class: "fc-band", d: "M1,1H27V11H1z", opacity: line.opacity ?? 1}));
      const full = line.hollow ? "fc-mark" : "fc-mark fc-full";
      if (marker) key.append(svg("path", {class: full, d: `M14,6${MARKERS[marker](0.6 * size)}`}));
      entry.append(key, label);
      return entry;
    }));
  }

  return {draw, legend};
})();
