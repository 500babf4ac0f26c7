/* Agents in the plane (plane.js) beside the error (curves.js), under one round cursor. A classic script with one global,
   FedLSAScene.

   const scene = FedLSAScene.create(element, options);
   scene.show(data);             // new data replace the old at once; an animation that runs starts again on them
   scene.show(data, {keep: 1});  // cursor and animation go on where they are (while a finger drags)
   scene.play(), .pause(), .fit(), .setRound(t);  scene.round, .playing, .drawn (what the last frame shows)

   options, all optional
     autoplay: true              play on the first data; a reader who asks for reduced motion sees the end instead
     onDrag(c, [x, y], first)    agent c's own solution is pulled; first: a new pull begins. Without it none can be pulled
     onStar([x, y], first)       theta_star is pulled, likewise
     future                      how strongly curves are drawn beyond the cursor, 0 to 1

   data is plain JSON, SceneData below; a value that is not a finite number is not drawn. Colours are those of colours.css;
   the height is a variable of the element, --fs-height. Where frames come slowly, what moves is drawn with
   fewer pixels until it rests. */
"use strict";

/** @typedef {{title?: string, rounds?: number, round?: number, seconds?: number, plane?: PlaneData | null,
      error?: ErrorData | null}} SceneData
      round: where the cursor goes (default: it stays); seconds: how long an animation takes */
/** @typedef {{autoplay?: boolean, onDrag?: Room["onDrag"], onStar?: Room["onStar"], future?: number}} SceneOptions */

var FedLSAScene = (() => {
  const {addStyle, clamp, most} = FedLSAAxes;
  addStyle(`
    :where(.fs) { --fs-height: 26rem; }
    .fs { color: var(--ink); font: 0.95rem/1.4 system-ui, sans-serif; min-width: 0; }
    .fs-title { font-weight: 600; margin: 0 0 0.3rem; } .fs-stage { display: flex; flex-wrap: wrap; gap: 0.6rem; }
    :where(.fs-view) { flex: 1 1 0; min-width: min(17rem, 100%); height: var(--fs-height); }
    .fs-view { position: relative; overflow: hidden; }
    :where(.fs-plane) { flex-grow: 1.9; min-width: min(21rem, 100%); }
    .fs canvas { position: absolute; inset: 0; width: 100%; height: 100%; touch-action: pan-y; }
    .fs-plane canvas:first-child { z-index: 1; }  /* names above walks */
    .fs-handles { position: relative; z-index: 2; }
    .fs-handle { position: absolute; width: 40px; height: 40px; margin: -20px; border: 0; padding: 0; border-radius: 50%;
      background: none; cursor: grab; touch-action: none; }
    .fs-zoom { position: absolute; right: 2px; top: 2px; z-index: 3; display: flex; gap: 2px; }
    .fs-tip { position: absolute; z-index: 2; pointer-events: none; font-size: 12px; line-height: 1.35;
      background: var(--paper); border: 1px solid var(--soft); border-radius: 5px; padding: 2px 3px; }
    .fs-tip td { padding: 0 4px; white-space: nowrap; font-variant-numeric: tabular-nums; }
    .fs-tip td + td { text-align: right; }
    .fs-bar { display: flex; flex-wrap: wrap; gap: 0.4rem 0.7rem; align-items: center; margin-top: 0.4rem; }
    .fs-bar .fs-keys { margin: 0; } :where(.fs-play) { min-width: 5.5rem; }
    .fs-bar input { flex: 1 1 9rem; min-width: 6rem; accent-color: var(--SCAFFLSA); }
    :is(.fs-bar, .fs-zoom) button { background: var(--paper); padding: 0.2rem 0.6rem; min-height: 32px; }
    .fs-zoom button { padding: 0; min-width: 28px; min-height: 28px; font-size: 14px; }
    @media (max-width: 26rem) { .fs-zoom button:nth-child(2) { display: none; } }  /* room for a method's name */
    .fs-key::before { content: ""; display: inline-block; width: 1.1em; height: 0.25em; margin-right: 0.4em;
      vertical-align: middle; background: var(--key); forced-color-adjust: none; }
    .fs-key[aria-pressed=true] { outline: 2px solid var(--key); outline-offset: -2px; }
    .fs-words, .fs-caption { margin: 0.35rem 0 0; min-height: 1.4em; font-variant-numeric: tabular-nums; }
    .fs-caption { color: var(--soft); font-size: 0.88em; }
    @media print { .fs :is(.fs-tip, .fs-zoom, .fs-bar) { display: none; } }`);
  /** @param {string[]} names */
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
  const SLOW = 1 / 45;      // seconds from frame to frame
  const SECONDS = 14;       // that an animation takes, though no round more than SLOWEST
  const SLOWEST = 0.9, LONGER = 1.6, EARLY = 4;  // the first rounds, in which most happens, take longer
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");

  // what stays the same is not written: it would be laid out, and read aloud, again
  /** @param {Element} element @param {string} text */
  const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  /** @param {Element} element @param {string} name @param {string | number} value */
  const set = (element, name, value) => {
    if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
  };

  /** @param {HTMLElement} host @param {SceneOptions} [options] */
  function create(host, options = {}) {
    host.classList.add("fs");
    host.innerHTML = BODY;
    const find = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (host.querySelector(selector));
    const [planeView, errorView, playButton] = [".fs-plane", ".fs-error", ".fs-play"].map(find);
    const [words, title, caption, keys] = [".fs-words", ".fs-title", ".fs-caption", ".fs-keys"].map(find);
    const slider = /** @type {HTMLInputElement} */ (find("input")), css = getComputedStyle(host);
    /** @type {SceneData} */
    let data = {};
    let T = 1, cursor = 0, playing = false, frame = 0, last = 0, said = -1, began = false, bandsOf = "", keyed = "";
    let changed = true, stale = true;  // something is to be drawn again; what stands still too
    let crisp = true, pace = 0;  // not crisp: what moves has fewer pixels until it rests; seconds from frame to frame
    /** @type {Record<string, string>} */
    let tints = {};
    /** @type {Paint} */
    const paint = name => tints[name] ??= css.getPropertyValue(`--${name}`).trim() || "#8c6bb1";

    // ---- time: a slow machine drops frames, but rounds take as long as ever
    const next = () => { frame = frame || requestAnimationFrame(step); };
    const wake = () => { changed = true; next(); };
    const renew = () => { stale = true; wake(); };
    const seek = (/** @type {number} */ t) => { pause(); setRound(t); };
    const plane = FedLSAPlane.create(planeView, {paint, wake, renew, still: () => reduced.matches,
      onDrag: options.onDrag, onStar: options.onStar});
    const curves = FedLSACurves.create(errorView, {paint, wake, renew, seek, future: options.future ?? 0.28});
    /** The cursor after dt seconds. @param {number} t @param {number} dt */
    function later(t, dt) {
      const more = (LONGER - 1) * EARLY, round = data.seconds ? data.seconds / (T + more) : clamp(SECONDS / T, 0.001, SLOWEST);
      const clock = (t < EARLY ? LONGER * t : t + more) + dt / round;
      return Math.min(T, clock < LONGER * EARLY ? clock / LONGER : clock - more);
    }
    /** @param {number} now */
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
      const settled = follow(dt);
      if (changed || stale) draw();
      if (playing || !settled) next(); else last = 0;
    }
    /** The view of the plane goes on; whether it is where it should be. @param {number} dt */
    function follow(dt) {
      const to = plane.ease(dt);
      stale ||= to !== "rests";
      return to !== "goes";
    }
    function moved() {  // a screen reader hears where the cursor stands, not every round of an animation
      const t = Math.round(cursor);
      if (said === t) return;
      said = t;
      slider.value = String(t);
      const text = describe(t);
      say(words, text);
      set(slider, "aria-valuetext", `round ${t} of ${T}`);
      set(/** @type {Element} */ (planeView.firstElementChild), "aria-label", `The agents in the plane. ${text}`);
      set(/** @type {Element} */ (errorView.firstElementChild), "aria-label", `The error, round by round. ${text}`);
    }
    /** @param {number} t */
    function describe(t) {
      const end = data.plane ? most(data.plane.methods.map(m => m.average.length)) - 1 : T;
      const far = end < t ? [`Agents are shown up to round ${end}`] : [];
      return `${[`Round ${t} of ${T}`, ...far, ...data.error ? curves.describe(t) : []].join(". ")}.`;
    }
    /** @param {boolean} now */
    function setPlaying(now) {
      playing = now;
      say(playButton, playing ? "Pause" : "Play");
      set(words, "aria-live", playing ? "off" : "polite");
      if (!playing && !crisp) { [crisp, pace] = [true, 0]; resize(); }
      wake();
    }
    const pause = () => setPlaying(false);
    function play() {
      if (cursor >= T) setRound(0);
      curves.point(null);
      setPlaying(true);
    }
    /** @param {number} t */
    function setRound(t) { cursor = clamp(t, 0, T); moved(); wake(); }

    // ---- data
    /** @param {SceneData} fresh @param {{keep?: unknown}} [how] */
    function show(fresh, how = {}) {
      data = fresh;
      const {plane: agents, error} = data, autoplay = !began && !!options.autoplay && !reduced.matches;
      T = data.rounds || (agents ? agents.methods[0].average.length - 1 : most(error?.rounds || error?.x || [1]));
      set(slider, "max", T);
      say(title, data.title || "");
      say(caption, agents?.caption || "");
      title.hidden = !data.title;
      const measured = (plane.ready || curves.ready) && planeView.hidden === !agents && errorView.hidden === !error;
      [planeView.hidden, errorView.hidden] = [!agents, !error];
      if (agents) plane.show(agents);
      if (error?.bands_of && !how.keep) bandsOf = error.bands_of;
      makeKeys();
      curves.point(null);
      const begin = began || !reduced.matches ? cursor : T;  // without motion the end is seen first
      cursor = clamp(how.keep ? cursor : data.round ?? (playing ? 0 : begin), 0, T);
      setPlaying(playing || autoplay);
      began = true;
      said = -1;
      moved();
      if (!how.keep) tints = {};
      if (measured) redraw(); else resize();
    }
    function makeKeys() {
      const methods = data.error ? data.error.methods : [], split = methods.filter(m => m.parts).map(m => m.name);
      if (!split.includes(bandsOf)) bandsOf = split[0] || "";
      if (data.error) curves.show(data.error, bandsOf);
      const all = String([bandsOf, split, ...methods.map(m => m.name)]);
      if (all === keyed) return;
      keyed = all;
      while (keys.children.length > methods.length) keys.lastChild?.remove();
      methods.forEach(({name}, i) => {
        const key = /** @type {HTMLButtonElement} */ (keys.children[i] || keys.appendChild(document.createElement("button")));
        Object.assign(key, {type: "button", className: "fs-key", textContent: name, disabled: !split.includes(name)});
        key.title = key.disabled ? "" : `Show what the error of ${name} is made of`;
        key.style.setProperty("--key", `var(--${name}, #8c6bb1)`);
        key.setAttribute("aria-pressed", String(name === bandsOf));
        key.onclick = () => { bandsOf = name; makeKeys(); renew(); };
      });
    }

    // ---- drawing
    function resize() {
      plane.resize(crisp);
      curves.resize(crisp);
      tints = {};
      redraw();
    }
    function redraw() {  // now, so that title and picture are never of two questions
      stale = true;
      follow(0);
      draw();
      next();
    }
    function draw() {
      if (!host.isConnected || !(data.plane || data.error)) return;
      scene.drawn = {title: data.title || "", round: cursor, rounds: T,
        plane: data.plane && plane.ready ? plane.draw(cursor, stale, playing) : {},
        error: data.error && curves.ready ? curves.draw(cursor, stale) : {}};
      changed = stale = false;
    }
    function fit() { plane.fit(); curves.zoom(0); }

    // ---- the reader
    slider.onblur = () => curves.point(null);
    playButton.onclick = () => playing ? pause() : play();
    const takeRound = () => { seek(+slider.value); if (data.error) curves.pointAt(cursor); };
    slider.oninput = slider.onpointerdown = takeRound;  // it stops for a hand on the slider, though its value stays
    slider.onkeydown = e => { if (/^(Arrow|Page|Home|End)/.test(e.key)) takeRound(); };
    const acts = [() => plane.zoom(1.4), () => plane.zoom(1 / 1.4), fit, () => curves.zoom(1.6), () => curves.zoom(1 / 1.6),
      () => curves.zoom(0)];
    host.querySelectorAll("button").forEach(button => {
      const i = [...host.querySelectorAll(".fs-zoom button")].indexOf(button);
      if (i >= 0) button.onclick = acts[i];
    });
    const sizes = new ResizeObserver(resize);
    for (const element of [planeView, errorView]) sizes.observe(element);
    for (const media of ["(prefers-color-scheme: dark)", "(min-resolution: 1.5dppx)"])
      matchMedia(media).addEventListener("change", resize);  // at once: another screen is finer
    matchMedia("print").addEventListener("change", e => {  // paper is light, and shows the round of the words
      if (e.matches) { curves.point(null); seek(Math.round(cursor)); }
      resize();
    });
    const scene = {show, play, pause, fit, setRound, get round() { return cursor; }, get playing() { return playing; },
      drawn: /** @type {null | {title: string, round: number, rounds: number, plane: ReturnType<typeof plane.draw>,
        error: ReturnType<typeof curves.draw>}} */ (null)};
    return scene;
  }
  return {create};
})();
