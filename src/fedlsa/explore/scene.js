/* Agents in the plane beside the error, under one round cursor. A classic script: it defines one global, FedLSAScene.

   const scene = FedLSAScene.create(element, options);
   scene.show(data);             // new data replace the old at once; an animation that runs starts again on them
   scene.show(data, {keep: 1});  // the cursor and the animation go on where they are (while a finger drags)
   scene.play(), .pause(), .fit(), .setRound(t), .destroy();  scene.round, .playing, .drawn (what the last frame shows)

   options, all optional
     autoplay: true              play on the first data, unless the reader asks for reduced motion
     onRound(t)                  the cursor has moved; t is real: 3.4 lies within round 4
     onDrag(c, [x, y], phase)    agent c's own solution is pulled; phase "move" or "end". Without it nothing can be pulled
     describe(t)                 the words under the picture, for everybody and for screen readers
     seconds                     of one round in play
     future                      how strongly curves are drawn beyond the cursor, 0 to 1

   data is plain JSON; every part may be missing, a value that is not a finite number is not drawn
     {title, rounds, round,                 // T; round: where the cursor goes (default: it stays)
      plane: {
        caption,                            // e.g. "Paths are means over the noise; a noisy run scatters about them."
        agents: [{name, own: [x, y] | null, weight, colour}],    // weight: share of the agent in theta_star
        theta_star: [x, y],
        box: [left, right, bottom, top],    // what "Fit" shows; by default what holds solutions and averages
        methods: [{name, colour,
                   average: [[x, y], ...],  // T + 1: what the server holds
                   walks: [[[x0, y0, x1, y1, ...], ...], ...],   // T x N: where an agent goes in a round, as flat lists
                   scatter: [...],          // T + 1: how far a noisy run strays from the average, drawn as a pale disc
                   end: [x, y] | null,      // limit of the mean; null with end_reason
                   end_reason}]},
      error: {
        title, x_label, x_scale: "linear" | "log",
        x: [...],                           // as long as the curves; a method whose costs differ has an x of its own
        rounds: [...],                      // the round of each x (default: x itself)
        bands_of: "FedLSA",                 // whose bands are shown first
        methods: [{name, colour, total: [...], parts: {start: [...], drift: [...], noise: [...]},   // they add up to total
                   floor,                   // predicted: a dashed level
                   seeds: [[...], ...], mean: [...], low: [...], high: [...],   // simulated runs, their mean, quantiles
                   unstable_from}]}}        // the round from which there is nothing more to say

   Colours are CSS variables of the element (--fs-ink, --fs-paper, --fs-FedLSA, ...); dark follows the reader's system, or
   data-theme="light" | "dark" on the element. Its height is --fs-height. */
"use strict";
var FedLSAScene = (() => {
  const STYLE = `
    :where(.fs) { --fs-ink: #222; --fs-soft: #5f5f5f; --fs-faint: #e0e0e0; --fs-paper: #fff; --fs-height: 26rem;
      --fs-FedLSA: #c85200; --fs-SCAFFLSA: #0072b2; --fs-Scaffnew: #008862;
      --fs-start: #9a9a9a; --fs-drift: #e69f00; --fs-noise: #8c6bb1; }
    :where(.fs[data-theme=dark]) { DARK }
    @media (prefers-color-scheme: dark) { :where(.fs:not([data-theme=light])) { DARK } }
    .fs { color: var(--fs-ink); font: 0.95rem/1.4 system-ui, sans-serif; min-width: 0; }
    .fs-title { font-weight: 600; margin: 0 0 0.3rem; }
    .fs-stage { display: flex; flex-wrap: wrap; gap: 0.6rem; }
    .fs-view { position: relative; flex: 1 1 0; min-width: min(17rem, 100%); height: var(--fs-height); overflow: hidden; }
    .fs-plane { flex-grow: 1.9; min-width: min(21rem, 100%); }
    .fs canvas { position: absolute; inset: 0; width: 100%; height: 100%; touch-action: pan-y; }
    .fs-handle { position: absolute; width: 40px; height: 40px; margin: -20px; border: 0; padding: 0; border-radius: 50%;
      background: none; cursor: grab; touch-action: none; }
    .fs-handle:active { cursor: grabbing; }
    .fs :is(button, input):focus-visible { outline: 3px solid #4c8dff; outline-offset: 1px; }
    .fs-zoom { display: flex; gap: 4px; }
    .fs-bar { display: flex; flex-wrap: wrap; gap: 0.4rem 0.7rem; align-items: center; margin-top: 0.4rem; }
    .fs-bar .fs-keys { margin: 0; }
    .fs-bar input { flex: 1 1 9rem; min-width: 6rem; accent-color: var(--fs-SCAFFLSA); }
    .fs-bar button { font: inherit; color: var(--fs-ink); background: var(--fs-paper); cursor: pointer;
      border: 1px solid var(--fs-soft); border-radius: 6px; padding: 0.2rem 0.6rem; min-height: 32px; min-width: 32px; }
    .fs-bar .fs-play { min-width: 5.5rem; }
    .fs-key::before { content: ""; display: inline-block; width: 1.1em; height: 0.25em; margin-right: 0.4em;
      vertical-align: middle; background: var(--key); }
    .fs-key[aria-pressed=true] { border-color: var(--key) !important; box-shadow: 0 0 0 1px var(--key); }
    .fs-words, .fs-caption { margin: 0.35rem 0 0; min-height: 1.4em; font-variant-numeric: tabular-nums; }
    .fs-caption { color: var(--fs-soft); font-size: 0.88em; }
    .fs [hidden] { display: none; }`.replaceAll("DARK", `--fs-ink: #ececec; --fs-soft: #a8a8a8; --fs-faint: #3a3d42;
      --fs-paper: #1c1e22; --fs-FedLSA: #ff8d45; --fs-SCAFFLSA: #58b1ee; --fs-Scaffnew: #35c99b;
      --fs-start: #8b8f96; --fs-drift: #d39a1c; --fs-noise: #a78bd0;`);
  const AGENTS = ["#cc79a7", "#d98f00", "#3f9bd8", "#009e73", "#8c6bb1", "#8a8a8a"];
  const MAX_NAMED = 8;      // agents that get a name each
  const WALK = 0.72;        // share of a round in which agents walk; then they go to their average
  const CLOSE_UP = 0.2;     // of the width that own solutions need: where paths need less, Fit leaves own solutions out
  const FONT = "system-ui, sans-serif", SMALL = `12px ${FONT}`, PLAIN = `13px ${FONT}`, STAR = "θ⋆";
  const AROUND = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]];  // where a name may stand
  const PARTS = ["noise", "drift", "start"];  // from the bottom
  const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  const isPoint = p => Array.isArray(p) && Number.isFinite(p[0]) && Number.isFinite(p[1]);
  const plain = v => v && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-4) ? v.toExponential(1) : String(+v.toPrecision(2));
  const short = v => Number.isFinite(v) ? plain(v) : "beyond all bounds";
  const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
  const least = list => list.reduce((a, b) => Math.min(a, b), Infinity);  // of lists too long for Math.min(...list)
  const most = list => list.reduce((a, b) => Math.max(a, b), -Infinity);
  const between = (p, q, s) => [p[0] + s * (q[0] - p[0]), p[1] + s * (q[1] - p[1])];

  /* Where a walk [x0, y0, x1, y1, ...] is after a share s of it. */
  function along(walk, s) {
    const at = s * (walk.length / 2 - 1), i = Math.min(Math.floor(at), walk.length / 2 - 2);
    return i < 0 ? [walk[0], walk[1]] : between(walk.slice(2 * i, 2 * i + 2), walk.slice(2 * i + 2, 2 * i + 4), at - i);
  }

  /* y at x for increasing xs, straight between its points. */
  function interpolate(xs, ys, x) {
    let i = xs.findIndex(v => v >= x);
    if (i < 0) return ys[ys.length - 1];
    if (i === 0 || xs[i] === x) return ys[i];
    return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
  }

  /* What holds the solutions and the averages : {x, y, w, h}. Runs that left for infinity have no say. */
  function fitted(plane) {
    if (plane.box) {
      const [l, r, b, t] = plane.box;
      return {x: (l + r) / 2, y: (b + t) / 2, w: r - l, h: t - b};
    }
    const own = plane.agents.map(a => a.own).filter(isPoint), star = isPoint(plane.theta_star) ? plane.theta_star : [0, 0];
    const far = p => Math.hypot(p[0] - star[0], p[1] - star[1]);
    let near = [star, ...plane.methods.flatMap(m => [m.average[0], m.end])].filter(isPoint);
    const reach = 1.5 * Math.max(...[...near, ...own].map(far), 1e-9);
    for (const m of plane.methods) {
      const ends = (m.walks || []).flatMap(round => round.map(walk => walk.slice(-2)));
      near = near.concat(m.average, ends).filter(p => isPoint(p) && far(p) < reach);
    }
    const box = points => {
      const [xs, ys] = [0, 1].map(i => points.map(p => p[i])), [l, r, b, t] = [least(xs), most(xs), least(ys), most(ys)];
      const flat = 0.15 * Math.max(r - l, t - b) || 1;
      return {x: (l + r) / 2, y: (b + t) / 2, w: Math.max(r - l, flat), h: Math.max(t - b, flat)};
    };
    const close = box(near), whole = box(near.concat(own));
    return Math.max(close.w, close.h) < CLOSE_UP * Math.max(whole.w, whole.h) ? close : whole;
  }

  /* Ticks of a logarithmic axis: whole decades, and 2 and 5 between them where there are few. */
  function decades(low, high) {
    const out = [], every = Math.max(1, Math.ceil(Math.log10(high / low) / 7));
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++)
      for (const m of high / low < 60 ? [1, 2, 5] : [1])
        if (m > 1 || k % every === 0) out.push(m * 10 ** k);
    return out.map(v => +v.toPrecision(3)).filter(v => v >= low * 0.999 && v <= high * 1.001);
  }

  function create(host, options = {}) {
    host.classList.add("fs");
    host.innerHTML = `<style>${STYLE}</style><p class="fs-title"></p><div class="fs-stage">
      <div class="fs-view fs-plane"><canvas role="img"></canvas><div class="fs-handles"></div></div>
      <div class="fs-view fs-error"><canvas role="img"></canvas></div></div>
      <div class="fs-bar"><button type="button" class="fs-play">Play</button>
        <input type="range" min="0" max="1" step="1" value="0" aria-label="Round">
        <span class="fs-zoom"><button type="button" aria-label="Zoom in">+</button>
        <button type="button" aria-label="Zoom out">−</button>
        <button type="button" aria-label="Fit everything into the picture">Fit</button></span>
        <span class="fs-keys fs-bar"></span></div>
      <p class="fs-words" aria-live="polite"></p><p class="fs-caption"></p>`;
    const find = selector => host.querySelector(selector);
    const [planeView, errorView, playButton, slider] = [".fs-plane", ".fs-error", ".fs-play", "input"].map(find);
    const [planeCanvas, errorCanvas] = [planeView, errorView].map(v => v.firstElementChild);
    let data = {}, T = 1, cursor = 0, playing = false, frame = 0, last = 0, bandsOf = "", css = null;
    let view = null, goal = null, user = null;  // of the plane: what is shown, where it goes, what the reader chose
    let panes = [], handles = [], roundAt = null, dragged = false, scene = null, began = false;

    // ---- time
    const wake = () => { frame = frame || requestAnimationFrame(step); };
    function step(now) {
      frame = 0;
      const dt = Math.min(0.1, (now - (last || now)) / 1000);
      last = now;
      if (playing) {
        const seconds = clamp(14 / T, 0.001, 0.9) * (cursor < 4 ? 1.6 : 1);  // most happens at first
        cursor = Math.min(T, cursor + dt / (options.seconds || seconds));
        if (cursor >= T) stop();
        moved();
      }
      const settled = ease();
      draw();
      if (playing || !settled) wake(); else last = 0;
    }
    function ease() {  // the view follows its goal
      if (!view || !goal) return true;
      const grown = k => Math.abs(Math.log(goal[k] / view[k]));
      const far = Math.hypot(goal.x - view.x, goal.y - view.y) / goal.w + grown("w") + grown("h");
      const s = still() || far < 0.003 ? 1 : 0.18;
      for (const k of "xywh") view[k] += s * (goal[k] - view[k]);
      return s === 1;
    }
    function moved() {
      const t = Math.round(cursor);
      slider.value = t;
      slider.setAttribute("aria-valuetext", `round ${t} of ${T}`);
      if (options.onRound) options.onRound(cursor);
    }
    function stop() { playing = false; playButton.textContent = "Play"; say(); wake(); }
    function play() {
      if (cursor >= T) cursor = 0;
      playing = true;
      playButton.textContent = "Pause";
      say();
      wake();
    }
    function setRound(t) { cursor = clamp(t, 0, T); moved(); say(); wake(); }
    function say() {  // a screen reader hears where the cursor stands, not every frame
      const words = find(".fs-words");
      words.setAttribute("aria-live", playing ? "off" : "polite");
      const text = data.plane || data.error ? (options.describe ? options.describe(cursor) : describe()) : "";
      if (words.textContent === text) return;
      words.textContent = text;
      planeCanvas.setAttribute("aria-label", `The agents in the plane. ${text}`);
      errorCanvas.setAttribute("aria-label", `The error, round by round. ${text}`);
    }
    function describe() {
      const t = Math.round(cursor), {plane, error} = data;
      const far = m => short(distance(m.average[Math.min(t, m.average.length - 1)], plane.theta_star));
      const value = m => short(interpolate(error.rounds || error.x, m.total, t));
      const said = plane && isPoint(plane.theta_star)
        ? plane.methods.map(m => `${m.name} is ${far(m)} from ${STAR}`)
        : error.methods.filter(m => m.total).map(m => `${m.name} has error ${value(m)}`);
      return `Round ${t} of ${T}. ${said.join("; ")}.`;
    }
    const distance = (p, q) => isPoint(p) ? Math.hypot(p[0] - q[0], p[1] - q[1]) : Infinity;

    // ---- data
    function show(fresh, how = {}) {
      data = fresh;
      const {plane, error} = data;
      T = data.rounds || (plane ? plane.methods[0].average.length - 1 : most(error.rounds || error.x));
      slider.max = T;
      find(".fs-title").textContent = data.title || "";
      find(".fs-title").hidden = !data.title;
      find(".fs-caption").textContent = plane && plane.caption || "";
      planeView.hidden = find(".fs-zoom").hidden = !plane;
      errorView.hidden = !error;
      if (plane) {
        if (!how.keep || !goal || !dragged) goal = user || fitted(plane);
        if (!view) view = {...goal};
        makeHandles();
      }
      makeKeys();
      if (!how.keep && playing) cursor = 0;
      if (!how.keep && data.round !== undefined) cursor = data.round;
      cursor = clamp(cursor, 0, T);
      if (!began && options.autoplay && !still()) playing = true;
      began = true;
      playButton.textContent = playing ? "Pause" : "Play";
      moved();
      say();
      resize();
    }
    function makeKeys() {
      const error = data.error, keys = find(".fs-keys"), methods = error ? error.methods : [];
      const split = methods.filter(m => m.parts).map(m => m.name);
      if (!split.includes(bandsOf)) bandsOf = split.includes(error && error.bands_of) ? error.bands_of : split[0] || "";
      const wanted = methods.map(m => `${m.name}${split.includes(m.name)}`).join();
      if (keys.dataset.shown !== wanted) {
        keys.dataset.shown = wanted;
        keys.replaceChildren(...methods.map(m => {
          const key = document.createElement("button");
          key.type = "button";
          key.className = "fs-key";
          key.textContent = m.name;
          key.style.setProperty("--key", colour(m));
          key.disabled = !split.includes(m.name);
          key.title = key.disabled ? "" : `Show what the error of ${m.name} is made of`;
          key.onclick = () => { bandsOf = m.name; makeKeys(); wake(); };
          return key;
        }));
      }
      for (const key of keys.children) key.setAttribute("aria-pressed", key.textContent === bandsOf);
    }
    function colour(m) { return m.colour || `var(--fs-${m.name}, #8c6bb1)`; }
    const paint = name => css.getPropertyValue(`--fs-${name}`);
    const ink = m => m.colour || paint(m.name).trim() || "#8c6bb1";
    function agentColour(c) {
      const agents = data.plane.agents, a = agents[c], star = data.plane.theta_star || [0, 0];
      if (a.colour) return a.colour;
      if (agents.length <= AGENTS.length) return AGENTS[c];
      const turn = isPoint(a.own) ? Math.atan2(a.own[1] - star[1], a.own[0] - star[0]) : c;
      return `hsl(${Math.round(turn * 180 / Math.PI + 360) % 360} 60% 52%)`;
    }

    // ---- handles: real buttons over own solutions, for fingers, keys and screen readers
    function makeHandles() {
      const agents = options.onDrag ? data.plane.agents : [], count = agents.length * data.plane.methods.length;
      while (handles.length > count) handles.pop().remove();
      while (handles.length < count) {
        const handle = document.createElement("button"), index = handles.length;
        const agent = () => index % data.plane.agents.length;
        handle.type = "button";
        handle.className = "fs-handle";
        handle.onpointerdown = e => { handle.setPointerCapture(e.pointerId); dragged = true; };
        handle.onpointermove = e => {
          if (!handle.hasPointerCapture(e.pointerId)) return;
          const r = planeCanvas.getBoundingClientRect();
          options.onDrag(agent(), toWorld(paneOf(index), e.clientX - r.left, e.clientY - r.top), "move");
        };
        handle.onpointerup = handle.onpointercancel = () => {
          dragged = false;
          options.onDrag(agent(), data.plane.agents[agent()].own, "end");
        };
        handle.onkeydown = e => {
          const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[e.key];
          const own = data.plane.agents[agent()].own;
          if (!way || !isPoint(own)) return;
          e.preventDefault();
          const by = (e.shiftKey ? 0.1 : 0.02) * Math.max(view.w, view.h);
          options.onDrag(agent(), [own[0] + by * way[0], own[1] + by * way[1]], "end");
        };
        handles.push(handle);
        find(".fs-handles").append(handle);
      }
      handles.forEach((handle, i) => {
        const a = agents[i % agents.length];
        handle.tabIndex = i < agents.length ? 0 : -1;  // once in the order of tabs, though in every pane
        const place = isPoint(a.own) ? ` at ${a.own.map(short).join(", ")}` : "";
        handle.setAttribute("aria-label", `${a.name}: its own solution${place}. Arrow keys move it.`);
      });
    }

    // ---- the plane on the screen
    const HEAD = 34;  // pixels above a pane's picture, for the method's name
    const scale = pane => 0.84 * Math.min(pane.w / view.w, (pane.h - HEAD) / view.h);
    const middle = pane => [pane.x + pane.w / 2, pane.y + (pane.h + HEAD) / 2];
    function toScreen(pane, p) {
      const [x, y] = middle(pane), s = scale(pane);
      return [x + (p[0] - view.x) * s, y - (p[1] - view.y) * s];
    }
    function toWorld(pane, px, py) {
      const [x, y] = middle(pane), s = scale(pane);
      return [view.x + (px - x) / s, view.y - (py - y) / s];
    }
    const paneOf = handle => panes[Math.floor(handle / data.plane.agents.length)];
    function zoom(factor, at) {  // the point under the pointer stays
      const to = {w: view.w / factor, h: view.h / factor, x: view.x, y: view.y};
      if (at) { to.x = at[0] + (view.x - at[0]) / factor; to.y = at[1] + (view.y - at[1]) / factor; }
      user = goal = to;
      planeCanvas.style.touchAction = "none";  // fingers now move the picture
      wake();
    }
    function fit() {
      user = null;
      if (data.plane) goal = fitted(data.plane);
      planeCanvas.style.touchAction = "pan-y";
      wake();
    }
    const paneAt = (x, y) => panes.find(p => x >= p.x && x <= p.x + p.w && y >= p.y && y <= p.y + p.h) || panes[0];
    function worldAt(e) {
      const r = planeCanvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
      return toWorld(paneAt(x, y), x, y);
    }
    const fingers = new Map();
    planeCanvas.addEventListener("wheel", e => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      zoom(Math.exp(-e.deltaY / 300), worldAt(e));
      Object.assign(view, goal);
    }, {passive: false});
    planeCanvas.onpointerdown = e => {
      fingers.set(e.pointerId, e);
      if (user || fingers.size > 1) planeCanvas.setPointerCapture(e.pointerId);
    };
    planeCanvas.onpointerup = planeCanvas.onpointercancel = e => fingers.delete(e.pointerId);
    planeCanvas.onpointermove = e => {
      const before = fingers.get(e.pointerId);
      if (!before) return;
      if (fingers.size === 2) {
        const other = [...fingers.values()].find(f => f.pointerId !== e.pointerId);
        const apart = f => Math.hypot(f.clientX - other.clientX, f.clientY - other.clientY);
        zoom(apart(e) / Math.max(1, apart(before)), worldAt(other));
        Object.assign(view, goal);
      } else if (user) {
        const s = scale(panes[0]);
        user = goal = {...view, x: view.x - (e.clientX - before.clientX) / s, y: view.y + (e.clientY - before.clientY) / s};
        Object.assign(view, goal);
        wake();
      }
      fingers.set(e.pointerId, e);
    };
    planeCanvas.addEventListener("touchmove", e => { if (e.touches.length > 1) e.preventDefault(); }, {passive: false});
    const zooms = host.querySelectorAll(".fs-zoom button");
    [() => zoom(1.4), () => zoom(1 / 1.4), fit].forEach((act, i) => { zooms[i].onclick = act; });

    // ---- drawing
    function resize() {
      for (const canvas of [planeCanvas, errorCanvas]) {
        const {width, height} = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
        const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
        if (w && (canvas.width !== w || canvas.height !== h)) [canvas.width, canvas.height] = [w, h];
      }
      cancelAnimationFrame(frame);  // drawn now, so that title and picture are never of two questions
      frame = 0;
      ease();
      draw();
      wake();
    }
    function brush(canvas) {
      const g = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, canvas.width, canvas.height);
      g.lineJoin = g.lineCap = "round";
      return [g, canvas.width / ratio, canvas.height / ratio];
    }
    function line(g, points, style, width, alpha = 1, dash = []) {
      g.beginPath();
      let down = false;
      for (const p of points) {
        if (!isPoint(p)) { down = false; continue; }
        const [x, y] = p.map(v => clamp(v, -1e5, 1e5));
        if (down) g.lineTo(x, y); else g.moveTo(x, y);
        down = true;
      }
      Object.assign(g, {strokeStyle: style, lineWidth: width, globalAlpha: alpha});
      g.setLineDash(dash);
      g.stroke();
      g.globalAlpha = 1;
      g.setLineDash([]);
    }
    function disc(g, p, r, fill, edge, width = 2) {
      g.beginPath();
      g.arc(p[0], p[1], r, 0, 2 * Math.PI);
      if (fill) { g.fillStyle = fill; g.fill(); }
      if (edge) { g.strokeStyle = edge; g.lineWidth = width; g.stroke(); }
    }
    function text(g, words, x, y, style, font = PLAIN, align = "left") {
      Object.assign(g, {font, textAlign: align, textBaseline: "middle", fillStyle: style});
      Object.assign(g, {strokeStyle: paint("paper"), lineWidth: 4});
      g.strokeText(words, x, y);
      g.fillText(words, x, y);
    }
    function draw() {
      if (!planeCanvas.isConnected || !(data.plane || data.error)) return;
      css = getComputedStyle(host);
      scene.drawn = {title: data.title || "", round: cursor, rounds: T, plane: {}, error: {}};
      if (data.plane && planeCanvas.width) drawPlane();
      if (data.error && errorCanvas.width) drawError();
      if (playing) say();
    }

    function drawPlane() {
      const [g, W, H] = brush(planeCanvas), methods = data.plane.methods, n = methods.length;
      const rows = [1, n].sort((a, b) => size(b) - size(a))[0];  // beside or below one another, whichever is larger
      function size(r) { return Math.min(W / Math.ceil(n / r) / goal.w, (H / r - HEAD) / goal.h); }
      const w = W / Math.ceil(n / rows), h = H / rows;
      panes = methods.map((_, i) => ({x: rows === 1 ? i * w : 0, y: rows === 1 ? 0 : i * h, w, h}));
      methods.forEach((m, i) => {
        const pane = panes[i];
        g.save();
        g.beginPath();
        g.rect(pane.x, pane.y, pane.w, pane.h);
        g.clip();
        drawPane(g, pane, m);
        g.restore();
        const edge = rows === 1 ? [[pane.x, 8], [pane.x, H - 8]] : [[8, pane.y], [W - 8, pane.y]];
        if (i) line(g, edge, paint("faint"), 1);
      });
      handles.forEach((handle, i) => {
        const own = data.plane.agents[i % data.plane.agents.length].own;
        const [x, y] = isPoint(own) ? onPane(paneOf(i), own) : [-99, -99];
        handle.style.left = `${x}px`;
        handle.style.top = `${y}px`;
      });
    }
    const EDGE = 14;
    function onPane(pane, p) {  // on the screen, drawn in to the pane's edge
      const [x, y] = toScreen(pane, p);
      return [clamp(x, pane.x + EDGE, pane.x + pane.w - EDGE), clamp(y, pane.y + EDGE, pane.y + pane.h - EDGE)];
    }
    function drawPane(g, pane, m) {
      const {agents, theta_star} = data.plane, tint = ink(m), dark = paint("ink"), at = p => toScreen(pane, p);
      const flat = walk => Array.from({length: walk.length / 2}, (_, i) => at([walk[2 * i], walk[2 * i + 1]]));
      const many = agents.length > MAX_NAMED, walks = m.walks || [];
      const t = Math.min(cursor, m.average.length - 1), done = Math.ceil(t) - 1;
      const u = t - done;  // the share of round done + 1; 1 at its end
      const stars = isPoint(theta_star) ? at(theta_star) : null;

      if (stars) agents.forEach((a, c) => {  // theta_star's weights
        const width = a.weight ? clamp(1.6 * a.weight * agents.length, 0.6, 7) : 1;
        if (isPoint(a.own)) line(g, [at(a.own), stars], agentColour(c), width, 0.22, [2, 5]);
      });
      for (const [r, alpha] of [[done - 2, 0.12], [done - 1, 0.3]])
        (walks[r] || []).forEach((walk, c) => line(g, flat(walk), agentColour(c), 1.2, alpha));
      const walked = clamp(u / WALK, 0, 1), gathered = clamp((u - WALK) / (1 - WALK), 0, 1);
      const path = m.average.slice(0, Math.max(done, 0) + 1);
      if (t > 0 && gathered > 0) path.push(between(m.average[done], m.average[done + 1], gathered));
      line(g, path.map(p => isPoint(p) ? at(p) : p), tint, 2.5, 0.9);
      m.average.slice(0, done + 1).forEach(p => isPoint(p) && disc(g, at(p), many ? 2 : 2.6, tint));
      const heads = [];
      if (t > 0) (walks[done] || []).forEach((walk, c) => {
        const points = flat(walk), upto = Math.ceil(walked * (points.length - 1));
        let head = along(walk, walked);
        line(g, [...points.slice(0, upto), at(head)], agentColour(c), many ? 1.3 : 2.6);
        if (gathered) {
          const end = head, average = m.average[done + 1];
          head = isPoint(average) ? between(end, average, gathered) : end;
          line(g, [at(end), at(head)], agentColour(c), 1.2, 0.7, [3, 3]);
        }
        heads.push(head);
        if (isPoint(head)) disc(g, at(head), many ? 3 : 5, agentColour(c));
      });
      const here = t > 0 && gathered === 1 ? m.average[done + 1] : t > 0 ? m.average[done] : m.average[0];
      const stray = m.scatter && scale(pane) * m.scatter[t > 0 && gathered === 1 ? done + 1 : Math.max(done, 0)];
      if (isPoint(here) && stray > 6) {
        g.globalAlpha = 0.13;
        disc(g, at(here), stray, tint);
        g.globalAlpha = 1;
      }
      if (isPoint(here)) disc(g, at(here), 6, tint, paint("paper"));

      const labels = [];
      agents.forEach((a, c) => {
        if (!isPoint(a.own)) return;
        const p = onPane(pane, a.own), real = at(a.own), out = Math.hypot(p[0] - real[0], p[1] - real[1]) > 1;
        if (many) disc(g, p, 4, null, agentColour(c), 1.5);
        else disc(g, p, options.onDrag ? 10 : 8, paint("paper"), agentColour(c), 3);
        if (!many && !out && options.onDrag) disc(g, p, 3, agentColour(c));
        const name = a.name && a.name.length > 22 ? `${a.name.slice(0, 20)}…` : a.name;
        const away = out && stars ? `, ${short(distance(a.own, theta_star))} away` : "";
        if (!many && name) labels.push([p, name + away, dark, 13]);  // some agents' colours are too pale for words
      });
      if (stars) {
        g.beginPath();
        for (let i = 0; i < 10; i++) {
          const r = i % 2 ? 4 : 10, turn = i * Math.PI / 5;
          g.lineTo(stars[0] + r * Math.sin(turn), stars[1] - r * Math.cos(turn));
        }
        g.closePath();
        Object.assign(g, {fillStyle: dark, strokeStyle: paint("paper"), lineWidth: 1.5});
        g.fill();
        g.stroke();
        labels.unshift([stars, STAR, dark, 17]);
      }
      if (isPoint(m.end)) {
        const [x, y] = at(m.end);
        line(g, [[x - 6, y - 6], [x + 6, y + 6]], tint, 3);
        line(g, [[x - 6, y + 6], [x + 6, y - 6]], tint, 3);
        labels.push([[x, y], `${m.name} ends here`, tint, 13]);
      }
      if (isPoint(m.average[0])) labels.push([at(m.average[0]), "start", tint, 13]);
      const known = m.average.filter(isPoint);  // names keep off the line through these
      const taken = known.flatMap((p, t) => [1 / 3, 2 / 3, 1].map(s => between(known[Math.max(t - 1, 0)], p, s)));
      placed(g, pane, labels, taken.map(at));
      text(g, m.name, pane.x + 10, pane.y + 16, tint, `600 16px ${FONT}`);
      if (!isPoint(m.end) && m.end_reason) text(g, m.end_reason, pane.x + 10, pane.y + pane.h - 12, paint("soft"), SMALL);
      scene.drawn.plane[m.name] = {average: here, heads, end: m.end || null};
    }
    function placed(g, pane, labels, taken) {  // each name stands where it hides least
      const boxes = [[pane.x, pane.y, 110, 28]], marks = [...taken, ...labels.map(l => l[0])];
      const inside = (l, t, w, h) =>
        l > pane.x + 2 && t > pane.y + 2 && l + w < pane.x + pane.w - 2 && t + h < pane.y + pane.h - 2;
      for (const [[x, y], words, style, size] of labels) {
        g.font = `600 ${size}px ${FONT}`;
        const w = g.measureText(words).width, h = size + 3;
        let best = null;
        for (const gap of [14, 24, 38]) for (const [i, j] of AROUND) {
          const near = i && j ? 0.8 : 1;
          const left = x + i * near * (gap + w / 2) - w / 2, top = y + j * near * (gap + h / 2) - h / 2;
          const on = ([a, b, c, d]) => left < a + c && a < left + w && top < b + d && b < top + h;
          const hits = 4 * boxes.filter(on).length + marks.filter(p => on([p[0] - 6, p[1] - 4, 12, 8])).length + gap / 60;
          if (inside(left, top, w, h) && (!best || hits < best[0])) best = [hits, left, top];
        }
        if (!best) continue;
        boxes.push([best[1], best[2], w, h]);
        text(g, words, best[1], best[2] + h / 2, style, g.font);
      }
    }

    function drawError() {
      const [g, W, H] = brush(errorCanvas), {error} = data, {methods, x: xs} = error, rounds = error.rounds || xs;
      const [ink1, soft, faint] = ["ink", "soft", "faint"].map(paint);
      const pos = v => Number.isFinite(v) && v > 0;
      const curves = methods.flatMap(m => [m.total || [], m.mean || [], ...(m.seeds || [])]);
      const all = curves.flat().filter(pos), first = curves.map(c => c[0]).filter(pos);
      const top = all.length ? Math.min(most(all), 30 * most(first.length ? first : all)) : 1;
      const lowest = all.length ? least(all) : 0.1;
      const floors = methods.map(m => m.floor).filter(v => pos(v) && v > lowest / 10);
      const shown = methods.find(m => m.name === bandsOf && m.parts);
      const lasting = shown ? PARTS.map(k => (shown.parts[k] || []).at(-1)) : [];  // bands that last are to be seen
      const inside = lasting.filter(v => pos(v) && v > lowest / 1000);
      const bottom = Math.max(Math.min(lowest, ...floors, ...inside), 1e-12 * top);
      const low = 10 ** (Math.floor(Math.log10(bottom) * 2 - 0.02) / 2);  // half decades: axes rest while a finger drags
      const high = 10 ** (Math.ceil(Math.log10(top) * 2 + 0.02) / 2);
      const box = {l: 52, r: W - 14, t: 34, b: H - 40};
      const log = error.x_scale === "log", x0 = log ? least(xs.filter(v => v > 0)) : xs[0];
      const x1 = most(methods.map(m => (m.x || xs).at(-1)));
      const share = v => log ? Math.log(Math.max(v, x0) / x0) / Math.log(x1 / x0) : (v - x0) / (x1 - x0 || 1);
      const X = v => box.l + (box.r - box.l) * share(v);
      const height = v => Math.log(Math.max(v, low * 1e-3) / low) / Math.log(high / low);
      const Y = v => pos(v) ? box.b - (box.b - box.t) * height(v) : v === Infinity ? -1e4 : v === 0 ? H : NaN;
      roundAt = px => {
        const s = clamp((px - box.l) / (box.r - box.l), 0, 1);
        return interpolate(xs, rounds, log ? x0 * (x1 / x0) ** s : x0 + s * (x1 - x0));
      };

      for (const v of decades(low, high)) {
        line(g, [[box.l, Y(v)], [box.r, Y(v)]], faint, 1);
        const k = Math.round(Math.log10(v)), power = Math.abs(k) > 3 && high / low >= 60;
        const tick = power ? `10${[...String(k)].map(d => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d] || "⁻").join("")}` : String(v);
        text(g, tick, box.l - 6, Y(v), soft, SMALL, "right");
      }
      const gaps = log ? decades(x0, x1) : ticks(x0, x1, Math.max(2, Math.floor((box.r - box.l) / 70)));
      for (const v of gaps) {
        line(g, [[X(v), box.b], [X(v), box.b + 4]], soft, 1);
        const tick = v >= 1e5 ? v.toExponential().replace("e+", "e") : String(v);
        text(g, tick, X(v), box.b + 13, soft, SMALL, "center");
      }
      text(g, error.x_label || "communications", (box.l + box.r) / 2, H - 9, soft, SMALL, "center");
      text(g, error.title || "mean squared error", 8, 14, ink1, `600 14px ${FONT}`);

      g.save();
      g.beginPath();
      g.rect(box.l, box.t - 2, box.r - box.l + 2, box.b - box.t + 2);
      g.clip();
      if (shown) bands(g, shown, shown.x || xs, X, Y, low, box);
      for (const m of methods) {
        const own = m.x || xs, now = interpolate(rounds, own, cursor);
        const past = own.filter(v => v <= now), future = own.slice(past.length);
        const tint = ink(m), points = ys => ys.map((v, i) => [X(own[i]), Y(v)]);
        if (m.low && m.high) {
          g.beginPath();
          [...points(m.low), ...points(m.high).reverse()].forEach(p => g.lineTo(...p));
          Object.assign(g, {fillStyle: tint, globalAlpha: 0.15});
          g.fill();
          g.globalAlpha = 1;
        }
        for (const one of m.seeds || []) line(g, points(one), tint, 0.8, 0.35);
        if (m.mean) line(g, points(m.mean), tint, 2, 0.9, [2, 4]);
        const here = m.total ? Math.exp(interpolate(own, m.total.map(v => v === null ? NaN : Math.log(v)), now)) : NaN;
        if (m.total) {  // it grows up to the cursor; what is to come is pale
          const rest = future.map((v, i) => [X(v), Y(m.total[past.length + i])]);
          line(g, [[X(now), Y(here)], ...rest], tint, 2, options.future ?? 0.28);
          line(g, [...past.map((v, i) => [X(v), Y(m.total[i])]), [X(now), Y(here)]], tint, 3);
        }
        if (pos(m.floor)) line(g, [[box.l, Y(m.floor)], [box.r, Y(m.floor)]], tint, 1.4, 0.9, [6, 5]);
        if (Number.isFinite(m.unstable_from)) {
          const x = X(interpolate(rounds, own, m.unstable_from));
          line(g, [[x, box.t], [x, box.b]], tint, 1.2, 0.9, [1, 4]);
          const y = box.t + 10 + 17 * methods.indexOf(m);
          text(g, `${m.name} unstable`, clamp(x + 6, box.l + 4, box.r - 130), y, tint, SMALL);
        }
        scene.drawn.error[m.name] = {x: now, value: here, floor: m.floor ?? null};
      }
      const here = X(interpolate(rounds, xs, cursor));
      line(g, [[here, box.t], [here, box.b]], ink1, 1.2, 0.8);
      for (const m of methods) {
        const {x, value} = scene.drawn.error[m.name];
        if (pos(value)) disc(g, [X(x), Y(value)], 5, ink(m), paint("paper"));
      }
      g.restore();
    }
    function ticks(from, to, count) {
      const raw = Math.max((to - from) / count, Number.isInteger(to) ? 1 : 0) || 1;
      const unit = 10 ** Math.floor(Math.log10(raw)), step = unit * [1, 2, 5, 10].find(s => s * unit >= raw);
      return Array.from({length: Math.floor((to - from) / step) + 1}, (_, i) => +(from + i * step).toPrecision(6));
    }
    function bands(g, m, xs, X, Y, low, box) {  // a band is as thick as the factor by which the error would fall without it
      let under = xs.map(() => 0), named = [];
      for (const part of PARTS) {
        const values = m.parts[part];
        if (!values) continue;
        const over = under.map((v, i) => v + Math.max(0, values[i] || 0)), tint = paint(part);
        const ys = list => list.map(v => Math.min(box.b, v > 0 ? Y(v) : box.b));
        const [high, base] = [ys(over), ys(under)];
        g.beginPath();
        xs.forEach((x, i) => g.lineTo(X(x), high[i]));
        for (let i = xs.length - 1; i >= 0; i--) g.lineTo(X(xs[i]), base[i]);
        Object.assign(g, {fillStyle: tint, globalAlpha: 0.3});
        g.fill();
        g.globalAlpha = 1;
        const room = x => X(x) > box.l + 24 && X(x) < box.r - 24;  // for its name, where it is thickest
        const inner = xs.map((x, i) => room(x) ? base[i] - Math.max(high[i], box.t) : 0), widest = inner.indexOf(most(inner));
        const [x, y] = [X(xs[widest]), (Math.max(high[widest], box.t) + base[widest]) / 2];
        if (inner[widest] > 16 && named.every(p => Math.abs(p[0] - x) > 44 || Math.abs(p[1] - y) > 15)) {
          named.push([x, y]);
          text(g, part, x, y, paint("ink"), SMALL, "center");
        }
        under = over;
      }
    }

    // ---- the reader
    playButton.onclick = () => playing ? stop() : play();
    slider.oninput = () => { const t = +slider.value; stop(); setRound(t); };
    errorCanvas.onpointerdown = errorCanvas.onpointermove = e => {
      if (!roundAt || !e.buttons) return;
      stop();
      setRound(roundAt(e.clientX - errorCanvas.getBoundingClientRect().left));
    };
    const size = new ResizeObserver(() => data.plane || data.error ? resize() : 0);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    size.observe(planeView);
    size.observe(errorView);
    theme.addEventListener("change", wake);
    scene = {show, play, pause: stop, fit, setRound, drawn: null,
      get round() { return cursor; },
      get playing() { return playing; },
      destroy() {
        playing = false;
        cancelAnimationFrame(frame);
        size.disconnect();
        theme.removeEventListener("change", wake);
        host.replaceChildren();
      }};
    return scene;
  }
  return {create};
})();
