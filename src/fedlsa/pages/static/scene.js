/* Agents in the plane beside the error, under one round cursor. A classic script: it defines one global, FedLSAScene.

   const scene = FedLSAScene.create(element, options);
   scene.show(data);             // new data replace the old at once; an animation that runs starts again on them
   scene.show(data, {keep: 1});  // cursor and animation go on where they are (while a finger drags)
   scene.play(), .pause(), .fit(), .setRound(t);  scene.round, .playing, .drawn (what the last frame shows)

   options, all optional
     autoplay: true              play on the first data, unless the reader asks for reduced motion
     onDrag(c, [x, y], first)    agent c's own solution is pulled; first: a new pull begins. Without it none can be pulled
     onStar([x, y], first)       theta_star is pulled, likewise
     future                      how strongly curves are drawn beyond the cursor, 0 to 1

   data is plain JSON; every part may be missing, a value that is not a finite number is not drawn
     {title, rounds, round,                 // T; round: where the cursor goes (default: it stays)
      plane: {
        caption,                            // e.g. "Paths are means over the noise; a noisy run scatters about them."
        agents: [{name, own: [x, y] | null, weight}],            // weight: share of the agent in theta_star
        theta_star: [x, y],
        methods: [{name,
                   average: [[x, y], ...],  // T + 1: what the server holds
                   walks: [[[x0, y0, x1, y1, ...], ...], ...],   // T x N: where an agent goes in a round, as flat lists
                   scatter: [...],          // T + 1: how far a noisy run strays from the average, drawn as a pale disc
                   end: [x, y] | null,      // limit of the mean; null with end_reason
                   end_reason}]},
      error: {
        x_label, x_scale: "linear" | "log",
        x: [...],                           // as long as the curves; a method whose costs differ has an x of its own
        rounds: [...],                      // the round of each x (default: x itself)
        bands_of: "FedLSA",                 // whose bands are shown first
        methods: [{name, total: [...], parts: {start: [...], drift: [...], noise: [...]},   // they add up to total
                   floor,                   // predicted: a dashed level
                   seeds: [[...], ...], mean: [...], low: [...], high: [...],   // simulated runs, their mean, quantiles
                   unstable_from}]}}        // the round from which there is nothing more to say

   Colours and the height are CSS variables of the element (--fs-ink, --fs-FedLSA, ..., --fs-height). A frame is
   cheap: what stands still has canvases of its own and is drawn when it changes (`stale`), walks grow on a canvas that is
   not cleared, only heads, averages and the round cursor are drawn again and again, and agents of one colour are drawn at
   one stroke. Where frames come slowly all the same, what moves is drawn with fewer pixels until it rests. */
"use strict";
var FedLSAScene = (() => {
  const DARK = `--fs-ink: #ececec; --fs-soft: #a8a8a8; --fs-faint: #3a3d42; --fs-paper: #1c1e22; --fs-FedLSA: #ff8d45;
    --fs-SCAFFLSA: #58b1ee; --fs-Scaffnew: #35c99b; --fs-start: #8b8f96; --fs-drift: #d39a1c; --fs-noise: #a78bd0;`;
  const STYLE = `
    :where(.fs) { --fs-ink: #222; --fs-soft: #5f5f5f; --fs-faint: #e0e0e0; --fs-paper: #fff; --fs-height: 26rem;
      --fs-FedLSA: #c85200; --fs-SCAFFLSA: #0072b2; --fs-Scaffnew: #008862;
      --fs-start: #9a9a9a; --fs-drift: #e69f00; --fs-noise: #8c6bb1; }
    @media (prefers-color-scheme: dark) { :where(.fs) { ${DARK} } }
    .fs { color: var(--fs-ink); font: 0.95rem/1.4 system-ui, sans-serif; min-width: 0; }
    .fs-title { font-weight: 600; margin: 0 0 0.3rem; } .fs-stage { display: flex; flex-wrap: wrap; gap: 0.6rem; }
    .fs-view { position: relative; flex: 1 1 0; min-width: min(17rem, 100%); height: var(--fs-height); overflow: hidden; }
    .fs-plane { flex-grow: 1.9; min-width: min(21rem, 100%); }
    .fs canvas { position: absolute; inset: 0; width: 100%; height: 100%; touch-action: pan-y; }
    .fs-plane canvas:first-child { z-index: 1; }  /* names above walks */
    .fs-handles { position: relative; z-index: 2; }
    .fs-handle { position: absolute; width: 40px; height: 40px; margin: -20px; border: 0; padding: 0; border-radius: 50%;
      background: none; cursor: grab; touch-action: none; }
    .fs :is(button, input):focus-visible { outline: 3px solid #4c8dff; outline-offset: 1px; }
    .fs-zoom { position: absolute; right: 2px; top: 2px; z-index: 3; display: flex; gap: 2px; }
    .fs-tip { position: absolute; top: 36px; z-index: 2; pointer-events: none; font-size: 12px; line-height: 1.35;
      background: var(--fs-paper); border: 1px solid var(--fs-soft); border-radius: 5px; padding: 2px 3px; }
    .fs-tip td { padding: 0 4px; white-space: nowrap; font-variant-numeric: tabular-nums; }
    .fs-tip td + td { text-align: right; }
    .fs-bar { display: flex; flex-wrap: wrap; gap: 0.4rem 0.7rem; align-items: center; margin-top: 0.4rem; }
    .fs-bar .fs-keys { margin: 0; } .fs-bar .fs-play { min-width: 5.5rem; }
    .fs-bar input { flex: 1 1 9rem; min-width: 6rem; accent-color: var(--fs-SCAFFLSA); }
    :is(.fs-bar, .fs-zoom) button { font: inherit; color: var(--fs-ink); background: var(--fs-paper); cursor: pointer;
      border: 1px solid var(--fs-soft); border-radius: 6px; padding: 0.2rem 0.6rem; min-height: 32px; min-width: 32px; }
    .fs-zoom button { padding: 0; min-width: 28px; min-height: 28px; font-size: 14px; }
    @media (max-width: 26rem) { .fs-zoom button:nth-child(2) { display: none; } }  /* room for a method's name */
    .fs-key::before { content: ""; display: inline-block; width: 1.1em; height: 0.25em; margin-right: 0.4em;
      vertical-align: middle; background: var(--key); forced-color-adjust: none; }
    .fs-key[aria-pressed=true] { outline: 2px solid var(--key); outline-offset: -2px; }
    .fs-words, .fs-caption { margin: 0.35rem 0 0; min-height: 1.4em; font-variant-numeric: tabular-nums; }
    .fs-caption { color: var(--fs-soft); font-size: 0.88em; } .fs [hidden] { display: none; }`;
  const zooms = (...names) => `<span class="fs-zoom">${["+", "−", "Fit"].map((sign, i) =>
    `<button type="button" aria-label="${names[i]}">${sign}</button>`).join("")}</span>`;
  const BODY = `<p class="fs-title"></p><div class="fs-stage">
    <div class="fs-view fs-plane"><canvas role="img"></canvas><canvas></canvas><canvas></canvas>
      <div class="fs-handles"></div>${zooms("Zoom in", "Zoom out", "Fit everything into the picture")}</div>
    <div class="fs-view fs-error"><canvas role="img"></canvas><canvas></canvas>
      <table class="fs-tip" aria-hidden="true" hidden></table>${zooms("Fewer rounds", "More rounds", "All rounds")}</div>
    </div>
    <div class="fs-bar"><button type="button" class="fs-play">Play</button>
      <input type="range" min="0" max="1" step="1" value="0" aria-label="Round"><span class="fs-keys fs-bar"></span></div>
    <p class="fs-words" aria-live="polite"></p><p class="fs-caption"></p>`;
  const AGENTS = ["#cc79a7", "#d98f00", "#3f9bd8", "#009e73", "#8c6bb1", "#8a8a8a"];
  const MAX_NAMED = 8;      // agents that get a name each
  const SLOW = 1 / 45;      // seconds from frame to frame
  const HUES = 24;          // of many agents: those of one colour are drawn at one stroke
  const WALK = 0.72;        // share of a round in which agents walk; then they go to their average
  const LONGER = 1.6, EARLY = 4;  // the first rounds, in which most happens, take longer
  const CLOSE_UP = 0.2;     // of the width that own solutions need: where paths need less, Fit leaves own solutions out
  const HEAD = 34, EDGE = 14;  // pixels above a view's picture, for its name; from an edge to the mark of what lies beyond
  const FONT = "system-ui, sans-serif", SMALL = `12px ${FONT}`, STAR = "θ⋆";
  const AROUND = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]];  // where a name may stand
  const PARTS = ["noise", "drift", "start"];  // from the bottom
  const motion = matchMedia("(prefers-reduced-motion: reduce)");
  const isPoint = p => Array.isArray(p) && Number.isFinite(p[0]) && Number.isFinite(p[1]);
  const plain = v => v && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-4) ? v.toExponential(1) : String(+v.toPrecision(2));
  const short = v => Number.isFinite(v) && v < 1e15 ? plain(v) : "beyond all bounds";
  const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
  const least = list => list.reduce((a, b) => Math.min(a, b), Infinity);  // of lists too long for Math.min(...list)
  const most = list => list.reduce((a, b) => Math.max(a, b), -Infinity);
  const positive = v => Number.isFinite(v) && v > 0;
  const distance = (p, q) => isPoint(p) ? Math.hypot(p[0] - q[0], p[1] - q[1]) : Infinity;
  const between = (p, q, s) => isPoint(p) && isPoint(q) ? p.map((v, i) => v + s * (q[i] - v)) : [NaN, NaN];

  // what stays the same is not written: it would be laid out, and read aloud, again
  const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const set = (element, name, value) => {
    if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  };

  /* A walk [x0, y0, x1, y1, ...] from a share of it to a later one, as points. */
  function piece(walk, from, to) {
    const n = walk.length / 2 - 1, point = i => [walk[2 * i], walk[2 * i + 1]];
    const at = s => between(point(Math.floor(s)), point(Math.ceil(s)), s % 1);
    const inner = [];
    for (let i = Math.floor(from * n) + 1; i < to * n; i++) inner.push(point(i));
    return [at(from * n), ...inner, at(to * n)];
  }

  /* y at x for increasing xs, straight between its points. */
  function interpolate(xs, ys, x) {
    let i = 0;  // the first that is not below x, found by halves
    for (let end = xs.length; i < end;) {
      const half = (i + end) >> 1;
      if (xs[half] >= x) end = half; else i = half + 1;
    }
    if (i === xs.length) return ys.at(-1);
    if (i === 0 || xs[i] === x) return ys[i];
    return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
  }

  /* What holds the solutions and the averages : {x, y, w, h}. Runs that left for infinity have no say. */
  function fitted(plane) {
    const own = plane.agents.map(a => a.own).filter(isPoint), star = isPoint(plane.theta_star) ? plane.theta_star : [0, 0];
    const ends = plane.methods.flatMap(m => [m.average[0], m.end]), far = p => distance(p, star);
    const paths = plane.methods.flatMap(m => [...m.average, ...(m.walks || []).flat().map(walk => walk.slice(-2))]);
    const reach = 1.5 * most([1e-9, ...[...ends, ...own].filter(isPoint).map(far)]);
    const near = [star, ...ends, ...paths].filter(p => far(p) < reach);
    const box = points => {
      const [xs, ys] = [0, 1].map(i => points.map(p => p[i])), [l, r, b, t] = [least(xs), most(xs), least(ys), most(ys)];
      const flat = 0.15 * Math.max(r - l, t - b) || 1;
      return {x: (l + r) / 2, y: (b + t) / 2, w: Math.max(r - l, flat), h: Math.max(t - b, flat)};
    };
    const close = box(near), whole = box(near.concat(own));
    return Math.max(close.w, close.h) < CLOSE_UP * Math.max(whole.w, whole.h) ? close : whole;
  }

  /* Ticks of an axis. Logarithmic: whole decades, and 2 and 5 between them where there are few. */
  function decades(low, high) {
    const out = [], every = Math.max(1, Math.ceil(Math.log10(high / low) / 7));
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++)
      for (const m of high / low < 60 ? [1, 2, 5] : [1])
        if (m > 1 || k % every === 0) out.push(m * 10 ** k);
    return out.map(v => +v.toPrecision(3)).filter(v => v >= low * 0.999 && v <= high * 1.001);
  }
  function evenly(from, to, count) {
    const raw = Math.max((to - from) / count, Number.isInteger(to) ? 1 : 0) || 1;
    const unit = 10 ** Math.floor(Math.log10(raw)), step = unit * [1, 2, 5, 10].find(s => s * unit >= raw);
    const first = Math.ceil(from / step - 1e-9);
    return Array.from({length: Math.floor(to / step + 1e-9) - first + 1}, (_, i) => +((first + i) * step).toPrecision(6));
  }

  /* Where a name of width w and height h stands about its point [x, y]: [left, top], or null where there is no room. Of
     24 places the one that hides least: names and marks that are there (boxes), a path (taken), what is another's. */
  function freePlace([x, y], w, h, pane, labels, boxes, taken) {
    const [l, r, t, b] = [pane.x + 2, pane.x + pane.w - 2, pane.y + 2, pane.y + pane.h - 2];
    let best = null, fewest = Infinity;
    for (const gap of [14, 24, 38]) for (const [i, j] of AROUND) {
      const near = i && j ? 0.8 : 1;
      const left = clamp(x + i * near * (gap + w / 2) - w / 2, l, r - w), top = y + j * near * (gap + h / 2) - h / 2;
      if (w >= r - l || top <= t || top + h >= b) continue;
      const off = ([a, b]) => Math.hypot(Math.max(left - a, a - left - w, 0), Math.max(top - b, b - top - h, 0));
      const nearer = labels.filter(([p]) => off(p) < off([x, y])).length;  // it is not to be taken for another's
      const on = ([a, b, c, d]) => left < a + c && a < left + w && top < b + d && b < top + h;
      const struck = taken.filter(p => on([p[0] - 6, p[1] - 4, 12, 8])).length;
      const hidden = 4 * boxes.filter(on).length + struck + 2 * nearer + gap / 60;
      if (hidden < fewest) [best, fewest] = [[left, top], hidden];
    }
    return best;
  }

  // ---- the brush
  function line(g, points, style, width, alpha = 1, dash = []) {
    g.beginPath();
    let down = false;
    for (const p of points) {
      if (isPoint(p)) g[down ? "lineTo" : "moveTo"](clamp(p[0], -1e5, 1e5), clamp(p[1], -1e5, 1e5));
      down = isPoint(p);
    }
    Object.assign(g, {strokeStyle: style, lineWidth: width, globalAlpha: alpha}).setLineDash(dash);
    g.stroke();
    g.globalAlpha = 1;
    if (dash.length) g.setLineDash([]);
  }
  function discs(g, points, r, fill, edge, width = 2) {
    g.beginPath();
    for (const [x, y] of points.filter(isPoint)) {
      g.moveTo(x + r, y);
      g.arc(x, y, r, 0, 2 * Math.PI);
    }
    if (fill) { g.fillStyle = fill; g.fill(); }
    if (edge) { g.strokeStyle = edge; g.lineWidth = width; g.stroke(); }
  }
  function area(g, points, style, alpha) {
    g.beginPath();
    for (const p of points) g.lineTo(...p);
    Object.assign(g, {fillStyle: style, globalAlpha: alpha}).fill();
    g.globalAlpha = 1;
  }
  function within(g, box, draw) { g.save(); g.beginPath(); g.rect(...box); g.clip(); draw(); g.restore(); }

  function create(host, options = {}) {
    host.classList.add("fs");
    host.innerHTML = `<style>${STYLE}</style>${BODY}`;
    const find = selector => host.querySelector(selector);
    const [planeView, errorView, playButton] = [".fs-plane", ".fs-error", ".fs-play"].map(find);
    const [slider, tip, words, title, caption, room] = ["input", ".fs-tip", ".fs-words", ".fs-title", ".fs-caption",
      ".fs-handles"].map(find);
    const [planeStill, trail, planeMoving, errorStill, errorMoving] = host.querySelectorAll("canvas");
    const css = getComputedStyle(host);
    const ratios = new Map();  // of each canvas: its pixels for one of the page
    let data = {}, T = 1, cursor = 0, playing = false, frame = 0, last = 0, said = null, began = false, bandsOf = "", keyed = "";
    let changed = true, stale = true;  // something is to be drawn again; what stands still too
    let tints = {}, colours = [], groups = new Map();  // colours by name and by agent; the agents of each colour
    let view = null, goal = null, user = null;   // of the plane: what is shown, where it goes, what the reader chose
    let crisp = true, pace = 0;  // not crisp: what moves has fewer pixels until it rests; seconds from frame to frame
    let panes = [], pulls = [], handles = [], held = null, trailed = 0;  // trailed: the round up to which walks are drawn
    let axes = null, close = 1, pointed = null;  // of the error: its scales, how far zoomed in, the x under the pointer

    // ---- time: a slow machine drops frames, but rounds take as long as ever
    const next = () => { frame = frame || requestAnimationFrame(step); };
    const wake = () => { changed = true; next(); };
    const renew = () => { stale = true; wake(); };
    const later = (t, dt) => {
      const more = (LONGER - 1) * EARLY, clock = (t < EARLY ? LONGER * t : t + more) + dt / clamp(14 / T, 0.001, 0.9);
      return Math.min(T, clock < LONGER * EARLY ? clock / LONGER : clock - more);
    };
    function step(now) {
      frame = 0;
      const dt = Math.min(1, (now - (last || now)) / 1000);
      last = now;
      if (playing) {
        cursor = later(cursor, dt);
        if (cursor >= T) pause();
        moved();
        changed = true;
        pace += 0.1 * (Math.min(dt, 2 * SLOW) - pace);
        if (crisp && pace > SLOW) { crisp = false; resize(); }
      }
      const settled = ease(dt);
      if (changed || stale) draw();
      if (playing || !settled) next(); else last = 0;
    }
    function ease(dt) {  // the view follows its goal
      if (!goal || view && [..."xywh"].every(k => view[k] === goal[k])) return true;
      const grown = k => Math.abs(Math.log(goal[k] / view[k]));
      const far = view && distance([goal.x, goal.y], [view.x, view.y]) / goal.w + grown("w") + grown("h");
      const there = !view || motion.matches || far < 0.003, s = 1 - Math.exp(-12 * dt);
      view = there ? {...goal} : Object.fromEntries([..."xywh"].map(k => [k, view[k] + s * (goal[k] - view[k])]));
      stale = true;
      return there;
    }
    function moved() {  // a screen reader hears where the cursor stands, not every round of an animation
      const t = Math.round(cursor);
      if (said === t) return;
      said = slider.value = t;
      const text = describe(t);
      say(words, text);
      set(slider, "aria-valuetext", `round ${t} of ${T}`);
      set(planeStill, "aria-label", `The agents in the plane. ${text}`);
      set(errorStill, "aria-label", `The error, round by round. ${text}`);
    }
    function setPlaying(now) {
      playing = now;
      say(playButton, playing ? "Pause" : "Play");
      set(words, "aria-live", playing ? "off" : "polite");
      if (!playing && !crisp) { [crisp, pace] = [true, 0]; resize(); }
      wake();
    }
    const pause = () => setPlaying(false);
    function play() {
      if (cursor >= T) cursor = 0;
      point(null);
      setPlaying(true);
    }
    function setRound(t) { cursor = clamp(t, 0, T); moved(); wake(); }
    function describe(t) {  // each method's error, and what it is made of
      const {plane, error} = data, end = plane ? most(plane.methods.map(m => m.average.length)) - 1 : T;
      const each = (error ? error.methods : []).filter(m => m.total).map(m => {
        const at = list => interpolate(error.rounds || error.x, list.map(v => v ?? Infinity), t), total = at(m.total);
        const parts = Object.entries(m.parts || {}).map(([k, list]) => [k, at(list)]).sort((p, q) => q[1] - p[1]);
        const [[first, size], [second]] = [...parts, [], []];
        const share = size / total, made = share > 0.9 ? `nearly all ${first}`
          : share > 0.5 ? `mostly ${first}` : `${first} and ${second}`;
        return `${m.name}: error ${short(total)}${size && total < 1e15 ? `, ${made}` : ""}`;
      });
      return `${[`Round ${t} of ${T}`, ...end < t ? [`Agents are shown up to round ${end}`] : [], ...each].join(". ")}.`;
    }

    // ---- data
    function show(fresh, how = {}) {
      data = fresh;
      const {plane, error} = data;
      T = data.rounds || (plane ? plane.methods[0].average.length - 1 : most(error.rounds || error.x));
      set(slider, "max", T);
      say(title, data.title || "");
      say(caption, plane && plane.caption || "");
      title.hidden = !data.title;
      const measured = ratios.size && planeView.hidden === !plane && errorView.hidden === !error;
      [planeView.hidden, errorView.hidden] = [!plane, !error];
      if (plane && !held) goal = user || fitted(plane);
      if (plane) makeHandles();
      if (error && error.bands_of && !how.keep) bandsOf = error.bands_of;
      makeKeys();
      point(null);
      cursor = clamp(how.keep ? cursor : data.round ?? (playing ? 0 : cursor), 0, T);
      setPlaying(playing || !began && !!options.autoplay && !motion.matches);
      began = true;
      said = null;
      moved();
      if (!how.keep) tints = {};
      if (measured) redraw(); else resize();
    }
    function makeKeys() {
      const keys = find(".fs-keys"), methods = data.error ? data.error.methods : [];
      const split = methods.filter(m => m.parts).map(m => m.name);
      if (!split.includes(bandsOf)) bandsOf = split[0] || "";
      const all = String([bandsOf, split, ...methods.map(m => m.name)]);
      if (all === keyed) return;
      keyed = all;
      while (keys.children.length > methods.length) keys.lastChild.remove();
      methods.forEach(({name}, i) => {
        const key = keys.children[i] || keys.appendChild(document.createElement("button"));
        Object.assign(key, {type: "button", className: "fs-key", textContent: name, disabled: !split.includes(name)});
        key.title = key.disabled ? "" : `Show what the error of ${name} is made of`;
        key.style.setProperty("--key", `var(--fs-${name}, #8c6bb1)`);
        key.setAttribute("aria-pressed", name === bandsOf);
        key.onclick = () => { bandsOf = name; makeKeys(); renew(); };
      });
    }
    const paint = name => tints[name] ??= css.getPropertyValue(`--fs-${name}`).trim() || "#8c6bb1";
    function agentColour(a, c, agents) {
      if (agents.length <= AGENTS.length) return AGENTS[c];
      const [x, y] = data.plane.theta_star || [0, 0], turn = isPoint(a.own) ? Math.atan2(a.own[1] - y, a.own[0] - x) : c;
      return `hsl(${(Math.round(turn * HUES / 2 / Math.PI) + HUES) % HUES * 360 / HUES} 60% 52%)`;
    }

    // ---- handles: real buttons over what can be pulled, for fingers, keys and screen readers
    function makeHandles() {
      const {agents, methods, theta_star} = data.plane, place = p => isPoint(p) ? ` at ${p.map(short).join(", ")}` : "";
      pulls = !options.onDrag ? [] : agents.map((a, c) => ({
        at: a.own, pull: (...to) => options.onDrag(c, ...to),
        says: `${a.name}: its own solution${place(a.own)}. Arrow keys move it.`}));
      if (options.onStar && agents.length > 1) pulls.push({
        at: theta_star, pull: options.onStar,
        says: `${STAR}${place(theta_star)}. Arrow keys move it, and the weights follow.`});
      const count = pulls.length * methods.length;
      if (count !== handles.length) held = null;
      while (handles.length > count) handles.pop().remove();
      while (handles.length < count)
        handles.push(room.appendChild(Object.assign(document.createElement("button"), {type: "button"})));
      handles.forEach((handle, i) => {
        const c = i % pulls.length;
        set(handle, "class", c < agents.length ? "fs-handle" : "fs-handle fs-star");
        set(handle, "tabindex", i < pulls.length ? 0 : -1);  // once in the order of tabs, though in every pane
        set(handle, "aria-label", pulls[c].says);
      });
    }
    room.onpointerdown = e => {  // where several overlap, the nearest is pulled; another finger waits
      if (held || e.button) return;
      e.target.setPointerCapture(e.pointerId);
      const at = inside(planeView, e), far = handles.map(h => distance(at, [h.style.left, h.style.top].map(parseFloat)));
      held = {at, nearest: far.indexOf(least(far)), first: true, pointer: e.pointerId};
    };
    room.onpointermove = e => {
      const now = inside(planeView, e);
      if (held?.pointer !== e.pointerId || held.first && distance(now, held.at) < 3) return;  // a mere click moves nothing
      const {nearest, first} = held, pane = panes[Math.floor(nearest / pulls.length)];
      held.first = false;
      pulls[nearest % pulls.length].pull(toWorld(pane, now), first);
    };
    room.onlostpointercapture = e => {
      if (held?.pointer !== e.pointerId) return;
      held = null;
      goal = user || fitted(data.plane);
      wake();
    };
    room.onkeydown = e => {
      const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[e.key];
      const {at, pull} = pulls[handles.indexOf(e.target) % pulls.length];
      if (!way || !isPoint(at)) return;
      e.preventDefault();
      pull(at.map((v, k) => v + (e.shiftKey ? 0.1 : 0.02) * Math.max(view.w, view.h) * way[k]), true);
    };

    // ---- the plane on the screen
    const inside = (element, e, r = element.getBoundingClientRect()) => [e.clientX - r.left, e.clientY - r.top];
    const scale = ({w, h}) => Math.min(Math.min(0.84 * w, w - 2 * EDGE - 2) / view.w, 0.84 * (h - HEAD) / view.h);
    const middle = pane => [pane.x + pane.w / 2, pane.y + (pane.h + HEAD) / 2];
    const toScreen = (pane, p, [x, y] = middle(pane), s = scale(pane)) =>
      isPoint(p) ? [x + (p[0] - view.x) * s, y - (p[1] - view.y) * s] : [NaN, NaN];
    const toWorld = (pane, [px, py], [x, y] = middle(pane), s = scale(pane)) =>
      [view.x + (px - x) / s, view.y - (py - y) / s];
    function zoom(factor, at, now) {  // the point under the pointer stays
      const [x, y] = at || [goal.x, goal.y];
      user = goal = {w: goal.w / factor, h: goal.h / factor, x: x + (goal.x - x) / factor, y: y + (goal.y - y) / factor};
      if (now) view = {...goal};
      planeStill.style.touchAction = "none";  // fingers now move the picture
      renew();
    }
    function fit() {
      user = null;
      closer(0);
      if (data.plane) goal = fitted(data.plane);
      planeStill.style.touchAction = "pan-y";
      wake();
    }
    function worldAt(e) {
      const [x, y] = inside(planeView, e);
      return toWorld(panes.find(p => x >= p.x && x <= p.x + p.w && y >= p.y && y <= p.y + p.h) || panes[0], [x, y]);
    }
    const fingers = new Map();
    host.addEventListener("wheel", e => {
      if (!e.ctrlKey || ![planeStill, errorMoving].includes(e.target)) return;
      e.preventDefault();
      if (e.target === planeStill) zoom(Math.exp(-e.deltaY / 300), worldAt(e), true); else closer(Math.exp(-e.deltaY / 300));
    }, {passive: false});
    planeStill.onpointerdown = e => { fingers.set(e.pointerId, e); planeStill.setPointerCapture(e.pointerId); };
    planeStill.onlostpointercapture = e => fingers.delete(e.pointerId);
    planeStill.onpointermove = e => {
      const before = fingers.get(e.pointerId);
      if (!before) return;
      if (fingers.size === 2) {
        const other = [...fingers.values()].find(f => f.pointerId !== e.pointerId);
        const apart = f => Math.hypot(f.clientX - other.clientX, f.clientY - other.clientY);
        zoom(apart(e) / Math.max(1, apart(before)), worldAt(other), true);
      } else if (user) {
        const s = scale(panes[0]);
        view = {...view, x: view.x - (e.clientX - before.clientX) / s, y: view.y + (e.clientY - before.clientY) / s};
        user = goal = {...view};
        renew();
      }
      fingers.set(e.pointerId, e);
    };
    planeStill.addEventListener("touchmove", e => { if (e.touches.length > 1) e.preventDefault(); }, {passive: false});

    // ---- drawing
    function resize() {
      for (const canvas of [planeStill, trail, planeMoving, errorStill, errorMoving]) {
        const {clientWidth, clientHeight} = canvas.parentElement, still = canvas === planeStill || canvas === errorStill;
        const ratio = crisp || still ? devicePixelRatio : 1;
        const [w, h] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
        if (w && (canvas.width !== w || canvas.height !== h)) [canvas.width, canvas.height] = [w, h];
        ratios.set(canvas, ratio);
      }
      tints = {};
      redraw();
    }
    function redraw() {  // now, so that title and picture are never of two questions
      stale = true;
      ease(0);
      draw();
      next();
    }
    function brush(canvas, clear = true) {
      const g = canvas.getContext("2d"), ratio = ratios.get(canvas), W = canvas.width / ratio, H = canvas.height / ratio;
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (clear) g.clearRect(0, 0, W, H);
      return [Object.assign(g, {lineJoin: "round", lineCap: "round", textBaseline: "middle"}), W, H];
    }
    function text(g, words, x, y, style, font = SMALL, align = "left") {
      Object.assign(g, {font, textAlign: align, fillStyle: style, strokeStyle: paint("paper"), lineWidth: 4});
      g.strokeText(words, x, y);
      g.fillText(words, x, y);
    }
    function wrapped(g, words, width) {  // as lines that are no wider
      g.font = SMALL;
      return words.split(" ").reduce((lines, word) => {
        const longer = `${lines.at(-1)} ${word}`.trim();
        return g.measureText(longer).width < width ? [...lines.slice(0, -1), longer] : [...lines, word];
      }, [""]);
    }
    function draw() {
      if (!host.isConnected || !(data.plane || data.error)) return;
      scene.drawn = {title: data.title || "", round: cursor, rounds: T, plane: {}, error: {}};
      if (data.plane && planeStill.width) drawPlane();
      if (data.error && errorStill.width) drawError();
      changed = stale = false;
    }

    function drawPlane() {
      if (stale) drawStill();
      const {agents, methods} = data.plane, many = agents.length > MAX_NAMED;
      const t = Math.min(cursor, most(methods.map(m => m.average.length)) - 1), done = Math.max(0, Math.ceil(t) - 1);
      const u = t - done;  // the share of round done + 1; 1 at its end
      const walked = clamp(u / WALK, 0, 1), gathered = clamp((u - WALK) / (1 - WALK), 0, 1);
      const now = gathered === 1 ? done + 1 : done, upto = done + walked;
      const again = stale || upto < trailed || upto > trailed + 2, [paper, W, H] = brush(trail, again);
      if (again) trailed = Math.max(0, done - 2);
      while (trailed < upto) {
        const r = Math.floor(trailed), to = Math.min(r + 1, upto);
        if (trailed === r) {  // walks of earlier rounds grow pale
          Object.assign(paper, {globalCompositeOperation: "destination-out", fillStyle: "rgb(0 0 0 / 72%)"});
          paper.fillRect(0, 0, W, H);
          paper.globalCompositeOperation = "source-over";
        }
        inPanes(paper, (m, at) => groups.forEach((members, colour) =>
          line(paper, walksOf(m, r, members).flatMap(walk => [...piece(walk, trailed - r, to - r).map(at), null]),
            colour, many ? 1.3 : 2.4)));
        trailed = to;
      }
      const [g] = brush(planeMoving);
      inPanes(g, (m, at, pane) => {
        const {average} = m, tint = paint(m.name), here = average[now], path = average.slice(0, done + 1).map(at);
        if (gathered) path.push(at(between(average[done], average[done + 1], gathered)));
        line(g, path, tint, 2.5, 0.9);
        discs(g, path.slice(0, done + 1), many ? 2 : 2.6, tint);
        groups.forEach((members, colour) => {
          const ends = walksOf(m, done, members).map(walk => piece(walk, walked, walked)[0]);
          const heads = gathered && isPoint(average[done + 1]) ? ends.map(p => between(p, average[done + 1], gathered)) : ends;
          if (gathered)
            line(g, ends.flatMap((p, i) => [at(p), at(heads[i]), null]), colour, 1.2, 0.7, many ? [] : [3, 3]);
          discs(g, heads.map(at), many ? 3 : 5, colour);
        });
        const stray = m.scatter && scale(pane) * m.scatter[now];
        g.globalAlpha = 0.13;
        if (stray > 6) discs(g, [at(here)], stray, tint);
        g.globalAlpha = 1;
        discs(g, [at(here)], 6, tint, paint("paper"));
        scene.drawn.plane[m.name] = {average: here, end: m.end || null};
      });
    }
    const walksOf = (m, r, members) => m.walks?.[r] ? members.map(c => m.walks[r][c]).filter(walk => walk) : [];
    function inPanes(g, draw) {
      data.plane.methods.forEach((m, i) => {
        const pane = panes[i], centre = middle(pane), s = scale(pane);
        within(g, [pane.x, pane.y, pane.w, pane.h], () => draw(m, p => toScreen(pane, p, centre, s), pane));
      });
    }
    function onPane(pane, p) {  // on the screen, drawn in to the pane's edge
      const [x, y] = toScreen(pane, p);
      return [clamp(x, pane.x + EDGE, pane.x + pane.w - EDGE), clamp(y, pane.y + HEAD, pane.y + pane.h - EDGE)];
    }
    function makePanes(W, H) {  // one of each method, beside or below one another, whichever is larger
      const n = data.plane.methods.length, size = (w, h) => Math.min(w / goal.w, (h - HEAD) / goal.h);
      const [across, down] = size(W, H / n) > size(W / n, H) ? [0, 1] : [1, 0], w = across ? W / n : W, h = down ? H / n : H;
      panes = data.plane.methods.map((_, i) => ({x: across * i * w, y: down * i * h, w, h}));
    }
    function drawStill() {
      const [g, W, H] = brush(planeStill), {agents, theta_star} = data.plane;
      const many = agents.length > MAX_NAMED, dark = paint("ink");
      makePanes(W, H);
      colours = agents.map(agentColour);
      groups = new Map(colours.map(colour => [colour, []]));
      colours.forEach((colour, c) => groups.get(colour).push(c));
      for (const {x, y} of panes.slice(1)) line(g, x ? [[x, 8], [x, H - 8]] : [[8, y], [W - 8, y]], paint("faint"), 1);
      inPanes(g, (m, at, pane) => {
        const tint = paint(m.name), star = isPoint(theta_star) ? at(theta_star) : null, labels = [];
        if (star) agents.forEach((a, c) => {  // theta_star's weights
          const width = a.weight ? clamp(1.6 * a.weight * agents.length, 0.6, 7) : 1;
          line(g, [at(a.own), star], colours[c], width, 0.22, many ? [] : [2, 5]);
        });
        agents.forEach((a, c) => {
          if (!isPoint(a.own)) return;
          const p = onPane(pane, a.own), out = distance(p, at(a.own)) > 1;
          if (many) discs(g, [p], 4, null, colours[c], 1.5);
          else discs(g, [p], options.onDrag ? 10 : 8, paint("paper"), colours[c], 3);
          if (!many && !out && options.onDrag) discs(g, [p], 3, colours[c]);
          const name = a.name && a.name.length > 22 ? `${a.name.slice(0, 20)}…` : a.name;
          const away = out && star ? `, ${short(distance(a.own, theta_star))} away` : "";
          if (!many && name) labels.push([p, name + away, dark, 13]);  // some agents' colours are too pale for words
        });
        if (star) {
          text(g, "★", star[0], star[1], dark, `24px ${FONT}`, "center");
          labels.unshift([star, STAR, dark, 17]);
        }
        if (isPoint(m.end)) {
          const [x, y] = at(m.end);
          line(g, [[x - 6, y - 6], [x + 6, y + 6], null, [x - 6, y + 6], [x + 6, y - 6]], tint, 3);
          labels.push([[x, y], pane.w < 240 ? "ends here" : `${m.name} ends here`, tint, 13]);
        }
        if (isPoint(m.average[0])) labels.push([at(m.average[0]), "start", tint, 13]);
        const path = m.average.filter(isPoint).map(at).filter((p, t, all) => !t || distance(p, all[t - 1]) > 5);
        placed(g, pane, labels, path.flatMap((p, t) => [1 / 3, 2 / 3, 1].map(s => between(path[Math.max(t - 1, 0)], p, s))));
        text(g, m.name, pane.x + 10, pane.y + 16, tint, `600 ${pane.w < 170 ? 13 : 16}px ${FONT}`);  // beside the buttons
        const reason = isPoint(m.end) || !m.end_reason ? [] : wrapped(g, m.end_reason, pane.w - 20);
        reason.reverse().forEach((words, i) => text(g, words, pane.x + 10, pane.y + pane.h - 12 - 15 * i, paint("soft")));
      });
      handles.forEach((handle, i) => {
        const {at} = pulls[i % pulls.length], pane = panes[Math.floor(i / pulls.length)];
        const [x, y] = isPoint(at) ? onPane(pane, at) : [-99, -99];
        Object.assign(handle.style, {left: `${x}px`, top: `${y}px`});
      });
    }
    function placed(g, pane, labels, taken) {  // each name stands where it hides least, off the line through `taken`
      const boxes = [[pane.x, pane.y, pane.w, 28], ...labels.map(([[x, y]]) => [x - 10, y - 10, 20, 20])];
      for (const [point, words, style, size] of labels) {
        g.font = `600 ${size}px ${FONT}`;
        const w = g.measureText(words).width, h = size + 3, found = freePlace(point, w, h, pane, labels, boxes, taken);
        if (!found) continue;
        boxes.push([...found, w, h]);
        text(g, words, found[0], found[1] + h / 2, style, g.font);
      }
    }

    // ---- the error on the screen
    function makeAxes(W, H) {  // zoomed in, the rounds about the cursor are shown, and heights follow what is seen
      const {error} = data, {methods} = error, rounds = error.rounds || error.x, log = error.x_scale === "log";
      const each = methods.map(m => m.x || error.x);
      const xs = each.reduce((a, b) => b.at(-1) > a.at(-1) ? b : a, error.x), x1 = xs.at(-1);  // the x that reaches farthest
      const same = each.flat().every((v, i) => Math.abs(v - xs[i % xs.length]) <= 1e-9 * x1);
      const x0 = least(each.flat().filter(v => v > 0 || !log));
      const share = v => log ? Math.log(Math.max(v, x0) / x0) / Math.log(x1 / x0) : (v - x0) / (x1 - x0 || 1);
      const value = s => log ? x0 * (x1 / x0) ** s : x0 + s * (x1 - x0);
      const from = clamp(share(interpolate(rounds, xs, cursor)) - 0.5 / close, 0, 1 - 1 / close), to = from + 1 / close;
      const seen = methods.flatMap(m => [m.total || [], m.mean || [], ...(m.seeds || [])].map(curve => {
        const own = (m.x || error.x).map(share);
        return curve.filter((v, i) => positive(v) && !(own[i + 1] < from) && !(own[i - 1] > to));
      })).filter(curve => curve.length);
      const all = seen.flat(), top = all.length ? Math.min(most(all), 30 * most(seen.map(curve => curve[0]))) : 1;
      const lowest = all.length ? least(all) : 0.1, shown = methods.find(m => m.name === bandsOf && m.parts);
      const lasting = shown ? PARTS.map(k => (shown.parts[k] || []).at(-1)) : [];  // bands that last are to be seen
      const also = [...methods.map(m => m.floor).filter(v => v > lowest / 10), ...lasting.filter(v => v > lowest / 1000)];
      const bottom = Math.max(least([lowest, ...also.filter(positive)]), 1e-12 * top);
      const low = 10 ** (Math.floor(Math.log10(bottom) * 2 - 0.12) / 2);  // half decades: axes rest while a finger drags
      const high = 10 ** (Math.ceil(Math.log10(top) * 2 + 0.02) / 2);
      const box = {l: 52, r: W - 14, t: HEAD, b: H - 40};
      const height = v => Math.log(Math.max(v, low * 1e-3) / low) / Math.log(high / low);
      return {box, low, high, log, rounds, xs, same, shown, names: [], from: value(from), to: value(to),
        holds: v => share(v) >= from - 1e-9 && share(v) <= to + 1e-9,
        X: v => box.l + (box.r - box.l) * (share(v) - from) * close,
        Y: v => positive(v) ? box.b - (box.b - box.t) * height(v) : v === Infinity ? -1e4 : v === 0 ? H : NaN,
        xAt: px => value(from + clamp((px - box.l) / (box.r - box.l), 0, 1) / close)};
    }
    function drawError() {
      if (stale || !axes.holds(interpolate(axes.rounds, axes.xs, cursor))) drawAxes();
      const [g] = brush(errorMoving);
      let ends = [];
      onAxes(g, () => { ends = drawCurves(g); });
      onAxes(g, () => ends.forEach(([p, tint]) => discs(g, [p], 5, tint, paint("paper"))), 6);  // whole at the edge too
    }
    function drawCurves(g) {
      const {methods} = data.error, {X, Y, box, rounds, same, names} = axes;
      const upright = (x, ...style) => {  // it leaves words out
        const at = X(x), struck = names.filter(([l, r]) => l < at && at < r).sort((p, q) => p[2] - q[2]);
        line(g, [[at, box.t], ...struck.flatMap(([, , y]) => [[at, y - 9], null, [at, y + 9]]), [at, box.b]], ...style);
      };
      const here = methods.map(m => interpolate(rounds, m.x || data.error.x, cursor));
      here.slice(0, same ? 1 : undefined).forEach((x, i) => upright(x, paint(same ? "ink" : methods[i].name), 1.2, 0.8));
      if (pointed !== null) upright(pointed, paint("soft"), 1, 1, [2, 3]);
      return methods.map((m, k) => {
        const own = m.x || data.error.x, x = here[k], total = m.total || [];
        const value = Math.exp(interpolate(own, total.map(v => v === null ? NaN : Math.log(v)), x));
        const past = own.filter(v => v <= x).map((v, i) => [X(v), Y(total[i])]);
        line(g, [...past, [X(x), Y(value)]], paint(m.name), 3);  // it grows up to the cursor
        scene.drawn.error[m.name] = {x, value, floor: m.floor ?? null};
        return [[X(x), Y(value)], paint(m.name)];
      });
    }
    const onAxes = (g, draw, more = 0, {l, r, t, b} = axes.box) =>
      within(g, [l - more, t - 2 - more, r - l + 2 + 2 * more, b - t + 2 + 2 * more], () => draw(g));
    function drawAxes() {
      const [g, W, H] = brush(errorStill), soft = paint("soft");
      axes = makeAxes(W, H);
      const {X, Y, box, low, high, log, from, to} = axes;
      for (const v of decades(low, high)) {
        line(g, [[box.l, Y(v)], [box.r, Y(v)]], paint("faint"), 1);
        const k = Math.round(Math.log10(v)), power = Math.abs(k) > 3 && high / low >= 60;
        const tick = power ? `10${[...String(k)].map(d => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d] || "⁻").join("")}` : String(v);
        text(g, tick, box.l - 6, Y(v), soft, SMALL, "right");
      }
      for (const v of log ? decades(from, to) : evenly(from, to, Math.max(2, Math.floor((box.r - box.l) / 70)))) {
        line(g, [[X(v), box.b], [X(v), box.b + 4]], soft, 1);
        text(g, v >= 1e5 ? v.toExponential().replace("e+", "e") : String(v), X(v), box.b + 13, soft, SMALL, "center");
      }
      text(g, data.error.x_label || "communications", (box.l + box.r) / 2, H - 9, soft, SMALL, "center");
      text(g, W < 250 ? "error" : "mean squared error", 8, 16, paint("ink"), `600 14px ${FONT}`);
      onAxes(g, drawStillCurves);
    }
    function drawStillCurves(g) {
      const {error} = data, {X, Y, box, shown, rounds} = axes;
      if (shown) bands(g, shown);
      error.methods.forEach((m, i) => {
        const own = m.x || error.x, tint = paint(m.name), points = ys => ys.map((v, k) => [X(own[k]), Y(v)]);
        if (m.low && m.high) area(g, [...points(m.low), ...points(m.high).reverse()], tint, 0.15);
        for (const one of m.seeds || []) line(g, points(one), tint, 0.8, 0.35);
        if (m.mean) line(g, points(m.mean), tint, 2, 0.9, [2, 4]);
        if (m.total) line(g, points(m.total), tint, 2, options.future ?? 0.28);  // what is to come is pale
        if (positive(m.floor)) line(g, [[box.l, Y(m.floor)], [box.r, Y(m.floor)]], tint, 1.4, 0.9, [6, 5]);
        if (!Number.isFinite(m.unstable_from)) return;
        const x = X(interpolate(rounds, own, m.unstable_from));
        line(g, [[x, box.t], [x, box.b]], tint, 1.2, 0.9, [1, 4]);
        written(g, `${m.name} unstable`, clamp(x + 6, box.l + 4, box.r - 130), box.t + 10 + 17 * i, tint);
      });
    }
    function written(g, words, x, y, style, align) {  // the round cursor's line leaves them out
      text(g, words, x, y, style, SMALL, align);
      const {width} = g.measureText(words), left = align === "center" ? x - width / 2 : x;
      axes.names.push([left - 3, left + width + 3, y]);
    }
    function bands(g, m) {  // a band is as thick as the factor by which the error would fall without it
      const {X, Y, box} = axes, pixels = one => (one.x || data.error.x).map(X), xs = pixels(m);
      const curves = data.error.methods.filter(one => one.total).map(one => [pixels(one), one.total.map(Y)]);
      const size = v => Number.isFinite(v) ? Math.max(0, v) : Infinity;  // no number: beyond all bounds
      let under = xs.map(() => 0);
      for (const part of PARTS.filter(k => m.parts[k])) {
        const over = under.map((v, i) => v + size(m.parts[part][i]));
        const [high, base] = [over, under].map(list => list.map(v => Math.min(box.b, v > 0 ? Y(v) : box.b)));
        area(g, [...xs.map((x, i) => [x, high[i]]), ...xs.map((x, i) => [x, base[i]]).reverse()], paint(part), 0.3);
        const struck = (x, y) => curves.some(([across, up]) => {
          const ys = [-30, -15, 0, 15, 30].map(d => interpolate(across, up, x + d));
          return least(ys) < y + 9 && most(ys) > y - 9;
        });
        const thick = xs.map((x, i) => {  // its name stands where it is thickest and no curve strikes it
          const height = base[i] - Math.max(high[i], box.t);
          return x < box.l + 24 || x > box.r - 24 || height <= 16 || struck(x, base[i] - height / 2) ? 0 : height;
        });
        const i = thick.indexOf(most(thick)), x = xs[i], y = base[i] - thick[i] / 2;
        if (thick[i]) written(g, part, x, y, paint("ink"), "center");
        under = over;
      }
    }

    // ---- the values under the pointer, as a small table: the words under the picture are there for screen readers
    function point(x, entries, round) {  // entries: one of each method; without a round they have rounds of their own
      if (x !== pointed) wake();
      pointed = x;
      tip.hidden = x === null;
      if (tip.hidden) return;
      const {methods} = data.error, kinds = [...PARTS].reverse().filter(k => methods.some(m => m.parts && m.parts[k]));
      const value = v => v === undefined ? "" : Number.isFinite(v) ? plain(v) : "∞", apart = round === undefined;
      const rows = methods.map((m, i) => !m.total ? [] : [m.name, ...(apart ? [axes.rounds[entries[i]] ?? "ended"] : []),
        ...[m.total, ...kinds.map(k => m.parts?.[k])].map(list => value(list?.[entries[i]]))]).filter(row => row.length);
      const head = [...(apart ? [`at ${+x.toPrecision(3)}`, "round"] : [`round ${round}`]), "error", ...kinds];
      tip.innerHTML = [head, ...rows].map(cells => `<tr><td>${cells.join("</td><td>")}</td></tr>`).join("");
      const at = axes.X(x), width = tip.offsetWidth, right = errorView.clientWidth - width - 2;
      tip.style.left = `${clamp(at < axes.box.r / 2 ? at + 12 : at - width - 12, 2, right)}px`;
    }
    const nearest = (list, v, far = list.map(u => Math.abs(u - v))) => far.indexOf(least(far));
    function pointAt(t) {
      const entry = nearest(axes.rounds, t);
      point(axes.xs[entry], data.error.methods.map(() => entry), axes.rounds[entry]);
    }
    let pressed = null;
    errorMoving.onpointerdown = e => { pressed = e; };
    errorMoving.onclick = errorMoving.onpointermove = e => {
      const x = axes.xAt(inside(errorView, e)[0]), t = interpolate(axes.xs, axes.rounds, x);
      const across = Math.abs(e.clientX - (pressed || e).clientX);
      if (e.pointerType === "touch" && e.buttons && across <= Math.abs(e.clientY - pressed.clientY)) return;  // it scrolls
      if (e.buttons || e.type === "click") { pause(); setRound(t); }  // of the x that reaches farthest: it has all rounds
      if (axes.same) return pointAt(t);
      const own = data.error.methods.map(m => m.x || data.error.x);
      point(x, own.map(list => x > list.at(-1) * (1 + 1e-9) ? -1 : nearest(list, x)));
    };
    errorMoving.onpointerleave = e => { if (e.pointerType === "mouse") point(null); };
    slider.onblur = () => point(null);

    // ---- the reader
    playButton.onclick = () => playing ? pause() : play();
    const takeRound = () => { pause(); setRound(+slider.value); if (data.error && axes) pointAt(cursor); };
    slider.oninput = slider.onpointerdown = takeRound;  // it stops for a hand on the slider, though its value stays
    slider.onkeydown = e => { if (/^(Arrow|Page|Home|End)/.test(e.key)) takeRound(); };
    function closer(factor) {
      close = clamp(close * factor, 1, Math.max(1, data.error ? (data.error.x.length - 1) / 3 : 1));
      point(null);
      renew();
    }
    const acts = [() => zoom(1.4), () => zoom(1 / 1.4), fit, () => closer(1.6), () => closer(1 / 1.6), () => closer(0)];
    host.querySelectorAll(".fs-zoom button").forEach((button, i) => { button.onclick = acts[i]; });
    const sizes = new ResizeObserver(resize);
    for (const element of [planeView, errorView]) sizes.observe(element);
    for (const media of ["(prefers-color-scheme: dark)", "print", "(min-resolution: 1.5dppx)"])
      matchMedia(media).addEventListener("change", resize);  // at once: paper is light, another screen is finer
    const scene = {show, play, pause, fit, setRound, drawn: null,
      get round() { return cursor; }, get playing() { return playing; }};
    return scene;
  }
  return {create};
})();
