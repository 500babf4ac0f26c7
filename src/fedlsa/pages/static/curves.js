/* Error curves beside the agents: what they are made of, floors, a cursor that all share. A classic script with one
   global, FedLSACurves, a part of scene.js. Axes and bands are drawn when they change, the cursor in every frame. */
"use strict";

/** @typedef {object} CurveData
    @property {string} name
    @property {(number | null)[]} [total]
    @property {Record<string, (number | null)[]>} [parts] start, drift, noise: they add up to total
    @property {number | null} [floor] predicted: a dashed level
    @property {number[][]} [seeds] simulated runs; mean, low, high: their mean and quantiles
    @property {number[]} [mean]
    @property {number[]} [low]
    @property {number[]} [high]
    @property {number[]} [x] its own, where costs differ
    @property {number | null} [unstable_from] the round from which there is nothing more to say */
/** @typedef {{x_label?: string, x_scale?: "linear" | "log", x: number[], rounds?: number[], bands_of?: string,
      methods: CurveData[]}} ErrorData
      x: as long as the curves; rounds: the round of each x, by default x itself; bands_of: whose bands are shown first */

var FedLSACurves = (() => {
  const {FONT, SMALL, clamp, finite, interpolate, least, most, nearest, number, positive, scale} = FedLSAAxes;
  const {area, discs, inside, layers, line, text, within} = FedLSACanvas;
  const PARTS = ["noise", "drift", "start"];  // from the bottom
  const HEAD = 34;  // pixels above a view's picture, for its name
  const WORDS = 17;  // pixels from line to line

  /** @param {HTMLElement} element
      @param {{paint: Paint, renew: () => void, wake: () => void, seek: (t: number) => void, future: number}} scene
        seek: a round is chosen; future: how strongly curves are drawn beyond the cursor */
  function create(element, {paint, renew, wake, seek, future}) {
    const [ground, moving] = element.querySelectorAll("canvas"), paper = layers([ground, moving]);
    const tip = /** @type {HTMLElement} */ (element.querySelector(".fs-tip"));
    /** @type {ErrorData} */
    let error = {x: [], methods: []};
    /** @type {ReturnType<typeof makeAxes>} */
    let axes;
    let bandsOf = "", cursor = 0, close = 1;  // close: how far zoomed in
    let pointed = /** @type {number | null} */ (null);  // the x under the pointer
    /** Places of words on the picture: from, to, height. @type {number[][]} */
    let names = [];

    /** @param {CurveData} m */
    const xOf = m => m.x || error.x;
    /** Beyond all bounds where there is no number. @param {(number | null)[]} list */
    const bounds = list => list.map(v => v ?? Infinity);
    /** Scales: zoomed in, the rounds about the cursor are shown, and heights follow what is seen.
        @param {number} W @param {number} H */
    function makeAxes(W, H) {
      const {methods} = error, rounds = error.rounds || error.x, kind = error.x_scale || "linear", each = methods.map(xOf);
      const xs = each.reduce((a, b) => b[b.length - 1] > a[a.length - 1] ? b : a, error.x);  // that reaches farthest
      const last = xs[xs.length - 1], same = each.flat().every((v, i) => Math.abs(v - xs[i % xs.length]) <= 1e-9 * last);
      const first = least(each.flat().filter(v => v > 0 || kind === "linear"));
      const all = scale({scale: kind, low: first, high: last}, 0, 1), share = (/** @type {number} */ v) => all.at(Math.max(v, first));
      const from = clamp(share(interpolate(rounds, xs, cursor)) - 0.5 / close, 0, 1 - 1 / close), to = from + 1 / close;
      const told = methods.map(m => rounds.findIndex(t => t > (m.unstable_from ?? Infinity))).map(i => i < 0 ? Infinity : i);
      const seen = methods.flatMap((m, k) => [m.total || [], m.mean || [], ...m.seeds || []].map(curve => {
        const own = xOf(m).map(share);
        return curve.filter((v, i) => i < told[k] && positive(v) && !(own[i + 1] < from) && !(own[i - 1] > to));
      })).filter(curve => curve.length).map(curve => /** @type {number[]} */ (curve));
      const values = seen.flat(), top = values.length ? Math.min(most(values), 30 * most(seen.map(curve => curve[0]))) : 1;
      const lowest = values.length ? least(values) : 0.1, shown = methods.find(m => m.name === bandsOf && m.parts);
      const lasting = PARTS.map(k => shown?.parts?.[k]?.at(-1));  // bands that last are to be seen
      const also = [...methods.map(m => m.floor).filter(v => positive(v) && v > lowest / 10),
        ...lasting.filter(v => positive(v) && v > lowest / 1000)];
      const bottom = Math.max(least([lowest, .../** @type {number[]} */ (also)]), 1e-12 * top);
      const low = 10 ** (Math.floor(Math.log10(bottom) * 2 - 0.12) / 2);  // half decades: axes rest while a finger drags
      const high = 10 ** (Math.ceil(Math.log10(top) * 2 + 0.02) / 2);
      const box = {l: 52, r: W - 14, t: HEAD, b: H - 40};
      const X = scale({scale: kind, low: all.value(from), high: all.value(to)}, box.l, box.r);
      const Y = scale({scale: "log", low, high}, box.b, box.t);
      return {box, X, Y, high, rounds, xs, same, shown, told,
        holds: (/** @type {number} */ v) => share(v) >= from - 1e-9 && share(v) <= to + 1e-9,
        xAt: (/** @type {number} */ px) => X.value(clamp(px, box.l, box.r)),
        y: (/** @type {number | null | undefined} */ v) => v === Infinity ? -1e4 : v === 0 ? H : positive(v) ? Y.at(v) : NaN};
    }

    // ---- drawing
    /** What stands still, where that has changed, and the cursor at a round; what is drawn.
        @param {number} t @param {boolean} stale */
    function draw(t, stale) {
      cursor = t;
      if (stale || !axes.holds(interpolate(axes.rounds, axes.xs, cursor))) drawAxes();
      const [g] = paper.brush(1), {same, X, y, box, rounds, told} = axes;
      /** @type {Record<string, {x: number, value: number, floor: number | null}>} */
      const drawn = {};
      /** @type {[Point, string][]} */
      const ends = [];
      onAxes(g, () => {
        const {methods} = error, here = methods.map(m => interpolate(rounds, xOf(m), cursor));
        for (const [i, x] of here.slice(0, same ? 1 : undefined).entries())
          drawUpright(g, x, paint(same ? "ink" : methods[i].name), 1.2, 0.8);
        if (pointed !== null) drawUpright(g, pointed, paint("soft"), 1, 1, [2, 3]);
        methods.forEach((m, k) => {
          const x = here[k], total = m.total || [], own = xOf(m), tint = paint(m.name);
          const value = Math.exp(interpolate(own, total.map(v => v === null ? NaN : Math.log(v)), x));
          const past = own.filter((v, i) => v <= x && i < told[k]).map((v, i) => /** @type {Point} */ ([X.at(v), y(total[i])]));
          if (cursor <= (m.unstable_from ?? Infinity)) {
            past.push([X.at(x), y(value)]);
            ends.push([past[past.length - 1], tint]);
          }
          line(g, past, tint, 3);  // it grows up to the cursor
          drawn[m.name] = {x, value, floor: m.floor ?? null};
        });
      });
      onAxes(g, () => ends.forEach(([p, tint]) => discs(g, [p], 5, tint, paint("paper"))), 6);  // whole at the edge too
      return drawn;
    }
    /** A vertical line, which leaves words out. @param {Brush} g @param {number} x @param {string} tint
        @param {number} width @param {number} alpha @param {number[]} [dash] */
    function drawUpright(g, x, tint, width, alpha, dash) {
      const at = axes.X.at(x), {t, b} = axes.box;
      const struck = names.filter(([l, r]) => l < at && at < r).sort((p, q) => p[2] - q[2]);
      const gaps = struck.flatMap(([, , y]) => /** @type {Points} */ ([[at, y - 9], null, [at, y + 9]]));
      line(g, [[at, t], ...gaps, [at, b]], tint, width, alpha, dash);
    }
    /** @param {Brush} g @param {() => void} draw @param {number} [more] */
    const onAxes = (g, draw, more = 0, {l, r, t, b} = axes.box) =>
      within(g, [l - more, t - 2 - more, r - l + 2 + 2 * more, b - t + 2 + 2 * more], draw);
    function drawAxes() {
      const [g, W, H] = paper.brush(0), soft = paint("soft"), rim = paint("paper");
      axes = makeAxes(W, H);
      names = [];
      const {X, Y, box} = axes;
      for (const v of Y.ticks(7)) {
        line(g, [[box.l, Y.at(v)], [box.r, Y.at(v)]], paint("faint"), 1);
        text(g, number(v, 6, 99_999), box.l - 6, Y.at(v), soft, rim, SMALL, "right");
      }
      const whole = axes.xs.every(Number.isInteger);  // there is no tenth of a round
      for (const v of X.ticks(Math.max(2, Math.floor((box.r - box.l) / 70))).filter(v => !whole || Number.isInteger(v))) {
        line(g, [[X.at(v), box.b], [X.at(v), box.b + 4]], soft, 1);
        text(g, number(v, 6), X.at(v), box.b + 13, soft, rim, SMALL, "center");
      }
      text(g, error.x_label || "communications", (box.l + box.r) / 2, H - 9, soft, rim, SMALL, "center");
      text(g, W < 250 ? "error" : "mean squared error", 8, 16, paint("ink"), rim, `600 14px ${FONT}`);
      onAxes(g, () => drawStillCurves(g));
    }
    /** @param {Brush} g */
    function drawStillCurves(g) {
      const {X, y, box, shown, rounds, told} = axes;
      if (shown) drawBands(g, shown);
      error.methods.forEach((m, k) => {
        const own = xOf(m).slice(0, told[k]), tint = paint(m.name);
        const points = (/** @type {(number | null)[]} */ ys) => own.map((v, i) => /** @type {Point} */ ([X.at(v), y(ys[i])]));
        if (m.low && m.high) area(g, [...points(m.low), ...points(m.high).reverse()], tint, 0.15);
        for (const one of m.seeds || []) line(g, points(one), tint, 0.8, 0.35);
        if (m.mean) line(g, points(m.mean), tint, 2, 0.9, [2, 4]);
        if (m.total) line(g, points(m.total), tint, 2, future);  // what is to come is pale
        if (positive(m.floor)) line(g, [[box.l, y(m.floor)], [box.r, y(m.floor)]], tint, 1.4, 0.9, [6, 5]);
        if (!finite(m.unstable_from)) return;
        const x = X.at(interpolate(rounds, xOf(m), m.unstable_from));
        line(g, [[x, box.t], [x, box.b]], tint, 1.2, 0.9, [1, 4]);
        write(g, `${m.name} unstable`, clamp(x + 6, box.l + 4, box.r - 130), box.t + 10 + WORDS * k, tint);
      });
    }
    /** Words that the cursor's line leaves out. @param {Brush} g @param {string} words @param {number} x @param {number} y
        @param {string} style @param {CanvasTextAlign} [align] */
    function write(g, words, x, y, style, align) {
      text(g, words, x, y, style, paint("paper"), SMALL, align);
      const {width} = g.measureText(words), left = align === "center" ? x - width / 2 : x;
      names.push([left - 3, left + width + 3, y]);
    }
    /** A band is as thick as the factor by which the error would fall without it. Of a method that is unstable there are
        bands as far as its error is on the axis. @param {Brush} g @param {CurveData} m */
    function drawBands(g, m) {
      const {X, y, box, high} = axes, parts = m.parts || {}, total = bounds(m.total || []);
      const leaves = finite(m.unstable_from) ? total.findIndex((v, i) => total.slice(i).every(u => u > high)) : -1;
      const xs = xOf(m).slice(0, leaves < 0 ? undefined : leaves).map(v => X.at(v));
      const curves = error.methods.map(one => ({across: xOf(one).map(v => X.at(v)), up: (one.total || []).map(y)}));
      const size = (/** @type {number | null} */ v) => finite(v) ? Math.max(0, v) : Infinity;
      let under = xs.map(() => 0);
      for (const part of PARTS.filter(k => parts[k])) {
        const over = under.map((v, i) => v + size(parts[part][i]));
        const [top, base] = [over, under].map(list => list.map(v => Math.min(box.b, v > 0 ? y(v) : box.b)));
        const upper = xs.map((x, i) => /** @type {Point} */ ([x, top[i]]));
        area(g, [...upper, ...xs.map((x, i) => /** @type {Point} */ ([x, base[i]])).reverse()], paint(part), 0.3);
        const struck = (/** @type {number} */ x, /** @type {number} */ y) => curves.some(({across, up}) => {
          const ys = up.length ? [-30, -15, 0, 15, 30].map(d => interpolate(across, up, x + d)) : [];
          return least(ys) < y + 9 && most(ys) > y - 9;
        });
        const thick = xs.map((x, i) => {  // its name stands where it is thickest and no curve strikes it
          const height = base[i] - Math.max(top[i], box.t);
          return x < box.l + 24 || x > box.r - 24 || height <= 16 || struck(x, base[i] - height / 2) ? 0 : height;
        });
        const i = thick.indexOf(most(thick));
        if (thick[i]) write(g, part, xs[i], base[i] - thick[i] / 2, paint("ink"), "center");
        under = over;
      }
    }

    // ---- the values under the pointer, as a small table: the words under the picture are there for screen readers
    /** @param {number | null} x @param {number[]} [entries] one of each method
        @param {number} [round] without it they have rounds of their own */
    function point(x, entries = [], round) {
      if (x !== pointed) wake();
      pointed = x;
      tip.hidden = x === null;
      if (x === null) return;
      const {methods} = error, kinds = [...PARTS].reverse().filter(k => methods.some(m => m.parts && m.parts[k]));
      const apart = round === undefined;
      const value = (/** @type {number | null | undefined} */ v) => v === undefined ? "" : number(v ?? Infinity, 2);
      const rows = methods.flatMap((m, i) => {
        const told = entries[i] < axes.told[i], lists = told ? [m.total, ...kinds.map(k => m.parts?.[k])] : [];
        const cells = [...lists.map(list => value(list?.[entries[i]])), ...told ? [] : ["unstable"]];
        return m.total ? [[m.name, ...apart ? [axes.rounds[entries[i]] ?? "ended"] : [], ...cells]] : [];
      });
      const head = [...apart ? [`at ${number(x)}`, "round"] : [`round ${round}`], "error", ...kinds];
      tip.replaceChildren(...[head, ...rows].map(cells => {
        const row = document.createElement("tr");
        row.append(...cells.map(words => Object.assign(document.createElement("td"), {textContent: String(words)})));
        return row;
      }));
      const at = axes.X.at(x), width = tip.offsetWidth, right = element.clientWidth - width - 2;
      tip.style.left = `${clamp(at < axes.box.r / 2 ? at + 12 : at - width - 12, 2, Math.max(2, right))}px`;
      tip.style.top = `${HEAD + 2 + WORDS * most([0, ...methods.map((m, k) => finite(m.unstable_from) ? k + 1 : 0)])}px`;
    }
    /** @param {number} t */
    function pointAt(t) {
      const entry = nearest(axes.rounds, t);
      point(axes.xs[entry], error.methods.map(() => entry), axes.rounds[entry]);
    }
    let pressed = /** @type {PointerEvent | null} */ (null);
    moving.onpointerdown = e => { pressed = e; };
    moving.onclick = moving.onpointermove = e => {
      const from = pressed || e, x = axes.xAt(inside(element, e)[0]), t = interpolate(axes.xs, axes.rounds, x);
      const along = Math.abs(e.clientX - from.clientX) <= Math.abs(e.clientY - from.clientY);
      if (/** @type {PointerEvent} */ (e).pointerType === "touch" && e.buttons && along) return;  // it scrolls
      if (e.buttons || e.type === "click") seek(t);  // of the x that reaches farthest: it has all rounds
      if (axes.same) return pointAt(t);
      const own = error.methods.map(xOf);
      point(x, own.map(list => x > list[list.length - 1] * (1 + 1e-9) ? -1 : nearest(list, x)));
    };
    moving.onpointerleave = e => { if (e.pointerType === "mouse") point(null); };

    /** @param {number} factor 0: all rounds */
    function zoom(factor) {
      close = clamp(close * factor, 1, Math.max(1, (error.x.length - 1) / 3));
      point(null);
      renew();
    }
    moving.addEventListener("wheel", e => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      zoom(Math.exp(-e.deltaY / 300));
    }, {passive: false});

    /** A round in words: each method's error, and what it is made of. @param {number} t */
    function describe(t) {
      return error.methods.flatMap(m => {
        if (!m.total) return [];
        const at = (/** @type {(number | null)[]} */ list) => interpolate(error.rounds || error.x, bounds(list), t), total = at(m.total);
        const parts = Object.entries(m.parts || {}).map(([k, list]) => ({k, size: at(list)})).sort((p, q) => q.size - p.size);
        const share = parts.length ? parts[0].size / total : 0;
        const made = share > 0.9 ? `nearly all ${parts[0].k}` : share > 0.5 ? `mostly ${parts[0].k}`
          : parts.slice(0, 2).map(part => part.k).join(" and ");
        if (!(total < 1e15)) return [`${m.name}: error beyond all bounds`];
        return [`${m.name}: error ${number(total, 2)}${parts.length && parts[0].size ? `, ${made}` : ""}`];
      });
    }

    return {
      /** @param {ErrorData} data @param {string} bands whose bands are shown */
      show(data, bands) { [error, bandsOf] = [data, bands]; },
      draw, describe, point, zoom, resize: paper.resize,
      pointAt: (/** @type {number} */ t) => { if (axes) pointAt(t); },
      get ready() { return paper.ready; },
    };
  }
  return {create};
})();
