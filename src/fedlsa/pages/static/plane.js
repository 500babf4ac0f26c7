/* Agents in the plane: own solutions, walks, averages, and handles to pull them. A classic script with one global,
   FedLSAPlane, a part of scene.js. Walks grow on a canvas that is not cleared; only heads and averages are drawn in every
   frame, and agents of one colour at one stroke. */
"use strict";

/** @typedef {{name?: string, own?: Point | null, weight?: number}} AgentData weight: share of the agent in theta_star */
/** @typedef {object} PathData
    @property {string} name
    @property {Point[]} average T + 1: what the server holds
    @property {number[][][]} [walks] T x N: where an agent goes in a round, as flat lists [x0, y0, x1, y1, ...]
    @property {number[]} [scatter] T + 1: how far a noisy run strays from the average, drawn as a pale disc
    @property {Point | null} [end] limit of the mean; null with end_reason
    @property {string} [end_reason]
    @property {Point | null} [guess] where the reader thought that it ends */
/** @typedef {{caption?: string, agents: AgentData[], theta_star?: Point | null, methods: PathData[]}} PlaneData */
/** @typedef {{x: number, y: number, w: number, h: number}} Rectangle in the plane by its middle, on the screen by its corner */
/** @typedef {(name: string) => string} Paint a colour by its name */
/** @typedef {{paint: Paint, wake: () => void, renew: () => void, still: () => boolean,
      onDrag?: (c: number, to: Point, first: boolean) => void, onStar?: (to: Point, first: boolean) => void}} Room
      wake: draw again; renew: what stands still too; still: the reader wants no motion */

var FedLSAPlane = (() => {
  const {FONT, SMALL, clamp, least, most, number} = FedLSAAxes;
  const {between, discs, distance, inside, isPoint, layers, line, text, within} = FedLSACanvas;
  const AGENTS = ["#cc79a7", "#d98f00", "#3f9bd8", "#009e73", "#8c6bb1", "#8a8a8a"];
  const MAX_NAMED = 8;      // agents that get a name each
  const HUES = 24;          // of many agents: those of one colour are drawn at one stroke
  const STRIDE = 1 / 16;    // of a round: as long as they move, walks of many agents follow their heads in strides
  const WALK = 0.72;        // share of a round in which agents walk; then they go to their average
  const CLOSE_UP = 0.2;     // of the width that own solutions need: where paths need less, Fit leaves own solutions out
  const HEAD = 34, EDGE = 14;  // pixels above a view's picture, for its name; from an edge to the mark of what lies beyond
  const STAR = "θ⋆";
  const AROUND = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]];  // where a name may stand
  const SIDES = /** @type {const} */ (["x", "y", "w", "h"]);
  /** @type {Record<string, Point>} */
  const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
  /** @typedef {[Point, string, string, number, boolean?]} Label where, words, colour, size; whether a line ties it */

  /** A walk from a share of it to a later one, as points. @param {number[]} walk @param {number} from @param {number} to */
  function piece(walk, from, to) {
    const n = walk.length / 2 - 1, point = (/** @type {number} */ i) => /** @type {Point} */ ([walk[2 * i], walk[2 * i + 1]]);
    const at = (/** @type {number} */ s) => between(point(Math.floor(s)), point(Math.ceil(s)), s % 1), inner = [];
    for (let i = Math.floor(from * n) + 1; i < to * n; i++) inner.push(point(i));
    return [at(from * n), ...inner, at(to * n)];
  }

  /** What holds the solutions and the averages. Runs that left for infinity have no say.
      @param {PlaneData} plane @returns {Rectangle} */
  function fitted(plane) {
    const own = plane.agents.map(a => a.own).filter(isPoint), star = isPoint(plane.theta_star) ? plane.theta_star : [0, 0];
    const ends = plane.methods.flatMap(m => [m.average[0], m.end, m.guess]).filter(isPoint);
    const far = (/** @type {Point} */ p) => distance(p, /** @type {Point} */ (star));
    const paths = plane.methods.flatMap(m => [...m.average, ...(m.walks || []).flat().map(walk => walk.slice(-2))]);
    const reach = 1.5 * most([1e-9, ...[...ends, ...own].map(far)]);
    const near = [star, ...ends, ...paths].filter(isPoint).filter(p => far(p) < reach);
    /** @param {Point[]} points */
    const box = points => {
      const [xs, ys] = [0, 1].map(i => points.map(p => p[i])), [l, r, b, t] = [least(xs), most(xs), least(ys), most(ys)];
      const flat = 0.15 * Math.max(r - l, t - b) || 1;
      return {x: (l + r) / 2, y: (b + t) / 2, w: Math.max(r - l, flat), h: Math.max(t - b, flat)};
    };
    const close = box(near), whole = box(near.concat(own));
    return Math.max(close.w, close.h) < CLOSE_UP * Math.max(whole.w, whole.h) ? close : whole;
  }

  /** Where a name of width w and height h stands about its point [x, y]: [left, top], or null where there is no room. Of
      all places the one that hides least: names and marks that are there (boxes, each with how much it weighs), a path
      (taken), what is another's.
      @param {Label} label @param {number} w @param {number} h @param {Rectangle} pane @param {Label[]} labels
      @param {number[][]} boxes @param {Point[]} taken @returns {Point | null} */
  function freePlace([[x, y], , , , tied], w, h, pane, labels, boxes, taken) {
    const [l, r, t, b] = [pane.x + 2, pane.x + pane.w - 2, pane.y + 2, pane.y + pane.h - 2];
    /** @type {Point | null} */
    let best = null;
    let fewest = Infinity;
    for (const gap of [14, 24, 38, 54, 72, 92]) for (const [i, j] of AROUND) {
      const near = i && j ? 0.8 : 1;
      const left = clamp(x + i * near * (gap + w / 2) - w / 2, l, r - w), top = y + j * near * (gap + h / 2) - h / 2;
      if (w >= r - l || top <= t || top + h >= b) continue;
      const off = (/** @type {Point} */ [a, b]) => Math.hypot(Math.max(left - a, a - left - w, 0), Math.max(top - b, b - top - h, 0));
      const nearer = labels.filter(([p]) => off(p) < off([x, y])).length;  // it is not to be taken for another's
      const on = (/** @type {number[]} */ [a, b, c, d]) => left < a + c + 2 && a < left + w + 2 && top < b + d && b < top + h;
      const struck = taken.filter(p => on([p[0] - 6, p[1] - 4, 12, 8])).length;
      const weight = boxes.filter(on).reduce((sum, box) => sum + box[4], 0);
      const hidden = weight + Math.min(struck, 8) + (tied ? 0 : 3 * nearer) + gap / 60;
      if (hidden < fewest) [best, fewest] = [[left, top], hidden];
    }
    return best;
  }

  /** Words as lines that are no wider. @param {Brush} g @param {string} words @param {number} width */
  function wrapped(g, words, width) {
    g.font = SMALL;
    return words.split(" ").reduce((lines, word) => {
      const last = lines[lines.length - 1], longer = `${last} ${word}`.trim();
      return g.measureText(longer).width < width ? [...lines.slice(0, -1), longer] : [...lines, word];
    }, [""]);
  }

  /** @param {HTMLElement} element @param {Room} scene */
  function create(element, {paint, wake, renew, still, onDrag, onStar}) {
    const [ground, trail, moving] = element.querySelectorAll("canvas"), paper = layers([ground, trail, moving]);
    const room = /** @type {HTMLElement} */ (element.querySelector(".fs-handles"));
    /** @type {PlaneData} */
    let plane = {agents: [], methods: []};
    /** @type {string[]} */
    let colours = [];  // of each agent
    /** @type {Map<string, number[]>} */
    let groups = new Map();  // the agents of each colour
    /** What is shown, where it goes, what the reader chose. @type {Rectangle | null} */
    let view = null, goal = /** @type {Rectangle | null} */ (null), user = /** @type {Rectangle | null} */ (null);
    /** @type {Rectangle[]} */
    let panes = [];  // of each method on the screen
    /** @type {{at?: Point | null, pull: (to: Point, first: boolean) => void, says: string}[]} */
    let pulls = [];
    /** @type {HTMLButtonElement[]} */
    let handles = [];
    /** @type {{at: Point, nearest: number, first: boolean, pointer: number} | null} */
    let held = null;
    let trailed = 0;  // the round up to which walks are drawn

    // ---- from the plane to the screen
    const shown = () => /** @type {Rectangle} */ (view);
    /** @param {Rectangle} pane */
    const scale = ({w, h}) => Math.min(Math.min(0.84 * w, w - 2 * EDGE - 2) / shown().w, 0.84 * (h - HEAD) / shown().h);
    /** @param {Rectangle} pane @returns {Point} */
    const middle = pane => [pane.x + pane.w / 2, pane.y + (pane.h + HEAD) / 2];
    /** @param {Rectangle} pane @param {Point | null | undefined} p @returns {Point} */
    const toScreen = (pane, p, [x, y] = middle(pane), s = scale(pane)) =>
      isPoint(p) ? [x + (p[0] - shown().x) * s, y - (p[1] - shown().y) * s] : [NaN, NaN];
    /** @param {Rectangle} pane @param {Point} at @returns {Point} */
    const toWorld = (pane, [px, py], [x, y] = middle(pane), s = scale(pane)) =>
      [shown().x + (px - x) / s, shown().y - (py - y) / s];
    /** On the screen, drawn in to the pane's edge. @param {Rectangle} pane @param {Point | null | undefined} p
        @returns {Point} */
    function onPane(pane, p) {
      const [x, y] = toScreen(pane, p);
      return [clamp(x, pane.x + EDGE, pane.x + pane.w - EDGE), clamp(y, pane.y + HEAD, pane.y + pane.h - EDGE)];
    }

    // ---- what is seen
    /** The view follows its goal. @param {number} dt */
    function ease(dt) {
      const from = view, to = goal;
      if (!to || from && SIDES.every(k => from[k] === to[k])) return "rests";
      const far = from ? distance([to.x, to.y], [from.x, from.y]) / to.w
        + Math.abs(Math.log(to.w / from.w)) + Math.abs(Math.log(to.h / from.h)) : 0;
      const there = !from || still() || far < 0.003, s = 1 - Math.exp(-12 * dt);
      view = {...to};
      if (from && !there) for (const k of SIDES) view[k] = from[k] + s * (to[k] - from[k]);
      return there ? "arrives" : "goes";
    }
    /** The point under the pointer stays. @param {number} factor @param {Point} [at] @param {boolean} [now] */
    function zoom(factor, at, now) {
      if (!goal) return;
      const [x, y] = at || [goal.x, goal.y];
      user = goal = {w: goal.w / factor, h: goal.h / factor, x: x + (goal.x - x) / factor, y: y + (goal.y - y) / factor};
      if (now) view = {...goal};
      ground.style.touchAction = "none";  // fingers now move the picture
      renew();
    }
    function fit() {
      user = null;
      if (plane.methods.length) goal = fitted(plane);
      ground.style.touchAction = "pan-y";
      wake();
    }
    /** @param {MouseEvent} e */
    function worldAt(e) {
      const [x, y] = inside(element, e);
      return toWorld(panes.find(p => x >= p.x && x <= p.x + p.w && y >= p.y && y <= p.y + p.h) || panes[0], [x, y]);
    }
    /** @type {Map<number, PointerEvent>} */
    const fingers = new Map();
    ground.addEventListener("wheel", e => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      zoom(Math.exp(-e.deltaY / 300), worldAt(e), true);
    }, {passive: false});
    ground.onpointerdown = e => { fingers.set(e.pointerId, e); ground.setPointerCapture(e.pointerId); };
    ground.onlostpointercapture = e => { fingers.delete(e.pointerId); };
    ground.onpointermove = e => {
      const before = fingers.get(e.pointerId), other = [...fingers.values()].find(f => f.pointerId !== e.pointerId);
      if (!before) return;
      if (fingers.size === 2 && other) {
        const apart = (/** @type {MouseEvent} */ f) => Math.hypot(f.clientX - other.clientX, f.clientY - other.clientY);
        zoom(apart(e) / Math.max(1, apart(before)), worldAt(other), true);
      } else if (user) {
        const s = scale(panes[0]), {x, y, w, h} = shown();
        view = {w, h, x: x - (e.clientX - before.clientX) / s, y: y + (e.clientY - before.clientY) / s};
        user = goal = {...view};
        renew();
      }
      fingers.set(e.pointerId, e);
    };
    ground.addEventListener("touchmove", e => { if (e.touches.length > 1) e.preventDefault(); }, {passive: false});

    // ---- handles: real buttons over what can be pulled, for fingers, keys and screen readers
    function makeHandles() {
      const {agents, methods, theta_star} = plane;
      const place = (/** @type {unknown} */ p) => isPoint(p) ? ` at ${p.map(v => number(v, 2)).join(", ")}` : "";
      pulls = !onDrag ? [] : agents.map((a, c) => ({
        at: a.own, pull: (to, first) => onDrag(c, to, first),
        says: `${a.name}: its own solution${place(a.own)}. Arrow keys move it.`}));
      if (onStar && agents.length > 1) pulls.push({
        at: theta_star, pull: onStar,
        says: `${STAR}${place(theta_star)}. Arrow keys move it, and the weights follow.`});
      const count = pulls.length * methods.length;
      if (count !== handles.length) held = null;
      for (const handle of handles.splice(count)) handle.remove();
      while (handles.length < count) {
        handles.push(document.createElement("button"));
        handles[handles.length - 1].type = "button";
        room.append(handles[handles.length - 1]);
      }
      handles.forEach((handle, i) => {
        const c = i % pulls.length;
        for (const [name, value] of [["class", c < agents.length ? "fs-handle" : "fs-handle fs-star"],
          ["tabindex", i < pulls.length ? "0" : "-1"],  // once in the order of tabs, though in every pane
          ["aria-label", pulls[c].says]])
          if (handle.getAttribute(name) !== value) handle.setAttribute(name, value);
      });
    }
    room.onpointerdown = e => {  // where several overlap, the nearest is pulled; another finger waits
      if (held || e.button) return;
      /** @type {Element} */ (e.target).setPointerCapture(e.pointerId);
      const at = inside(element, e);
      const far = handles.map(h => distance(at, [parseFloat(h.style.left), parseFloat(h.style.top)]));
      held = {at, nearest: far.indexOf(least(far)), first: true, pointer: e.pointerId};
    };
    room.onpointermove = e => {
      const now = inside(element, e);
      if (held?.pointer !== e.pointerId || held.first && distance(now, held.at) < 3) return;  // a mere click moves nothing
      const {nearest, first} = held, pane = panes[Math.floor(nearest / pulls.length)];
      held.first = false;
      pulls[nearest % pulls.length].pull(toWorld(pane, now), first);
    };
    room.addEventListener("lostpointercapture", e => {
      if (held?.pointer !== e.pointerId) return;
      held = null;
      goal = user || fitted(plane);
      wake();
    });
    room.onkeydown = e => {
      const way = ARROWS[e.key], {at, pull} = pulls[handles.indexOf(/** @type {HTMLButtonElement} */ (e.target)) % pulls.length];
      if (!way || !isPoint(at)) return;
      e.preventDefault();
      const step = (e.shiftKey ? 0.1 : 0.02) * Math.max(shown().w, shown().h);
      pull([at[0] + step * way[0], at[1] + step * way[1]], true);
    };

    // ---- drawing
    /** @param {PlaneData} data */
    function show(data) {
      plane = data;
      if (!held) goal = user || fitted(plane);
      makeHandles();
    }
    /** What stands still, where that has changed, and what moves, at a round; what is drawn.
        @param {number} cursor @param {boolean} stale @param {boolean} playing */
    function draw(cursor, stale, playing) {
      if (stale) drawStill();
      const {agents, methods} = plane, many = agents.length > MAX_NAMED;
      const t = Math.min(cursor, most(methods.map(m => m.average.length)) - 1), done = Math.max(0, Math.ceil(t) - 1);
      const u = t - done;  // the share of round done + 1; 1 at its end
      const walked = clamp(u / WALK, 0, 1), gathered = clamp((u - WALK) / (1 - WALK), 0, 1);
      const now = gathered === 1 ? done + 1 : done;
      const upto = done + walked, behind = upto - trailed;
      if (stale || !playing || !many || behind < 0 || behind >= STRIDE || walked === 1) drawTrail(upto, stale, many);
      const [g] = paper.brush(2);
      /** @type {Record<string, {average: Point, end: Point | null}>} */
      const drawn = {};
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
        const stray = m.scatter ? scale(pane) * m.scatter[now] : 0;
        g.globalAlpha = 0.13;
        if (stray > 6) discs(g, [at(here)], stray, tint);
        g.globalAlpha = 1;
        discs(g, [at(here)], 6, tint, paint("paper"));
        drawn[m.name] = {average: here, end: m.end || null};
      });
      return drawn;
    }
    /** Walks up to a round. @param {number} upto @param {boolean} stale @param {boolean} many */
    function drawTrail(upto, stale, many) {
      if (upto === trailed && !stale) return;
      const again = stale || upto < trailed || upto > trailed + 2, [g, W, H] = paper.brush(1, again);
      if (again) trailed = Math.max(0, Math.ceil(upto) - 3);
      while (trailed < upto) {
        const r = Math.floor(trailed), to = Math.min(r + 1, upto);
        if (trailed === r) {  // walks of earlier rounds grow pale
          Object.assign(g, {globalCompositeOperation: "destination-out", fillStyle: "rgb(0 0 0 / 72%)"});
          g.fillRect(0, 0, W, H);
          g.globalCompositeOperation = "source-over";
        }
        inPanes(g, (m, at) => groups.forEach((members, colour) =>
          line(g, walksOf(m, r, members).flatMap(walk => [...piece(walk, trailed - r, to - r).map(at), null]),
            colour, many ? 1.3 : 2.4)));
        trailed = to;
      }
    }
    /** @param {PathData} m @param {number} r @param {number[]} members */
    const walksOf = (m, r, members) => m.walks?.[r] ? members.map(c => /** @type {number[][][]} */ (m.walks)[r][c]).filter(walk => walk) : [];
    /** @param {Brush} g @param {(m: PathData, at: (p: Point | null | undefined) => Point, pane: Rectangle) => void} draw */
    function inPanes(g, draw) {
      plane.methods.forEach((m, i) => {
        const pane = panes[i], centre = middle(pane), s = scale(pane);
        within(g, [pane.x, pane.y, pane.w, pane.h], () => draw(m, p => toScreen(pane, p, centre, s), pane));
      });
    }
    /** One pane of each method, beside or below one another, whichever is larger. @param {number} W @param {number} H */
    function makePanes(W, H) {
      const n = plane.methods.length, {w: wide, h: high} = goal || shown();
      const size = (/** @type {number} */ w, /** @type {number} */ h) => Math.min(w / wide, (h - HEAD) / high);
      const [across, down] = size(W, H / n) > size(W / n, H) ? [0, 1] : [1, 0], w = across ? W / n : W, h = down ? H / n : H;
      panes = plane.methods.map((_, i) => ({x: across * i * w, y: down * i * h, w, h}));
    }
    /** @param {AgentData} a @param {number} c */
    function agentColour({own}, c) {
      if (plane.agents.length <= AGENTS.length) return AGENTS[c];
      const [x, y] = plane.theta_star || [0, 0], turn = isPoint(own) ? Math.atan2(own[1] - y, own[0] - x) : c;
      return `hsl(${(Math.round(turn * HUES / 2 / Math.PI) + HUES) % HUES * 360 / HUES} 60% 52%)`;
    }
    function drawStill() {
      const [g, W, H] = paper.brush(0);
      makePanes(W, H);
      colours = plane.agents.map(agentColour);
      groups = new Map(colours.map(colour => [colour, /** @type {number[]} */ ([])]));
      colours.forEach((colour, c) => groups.get(colour)?.push(c));
      for (const {x, y} of panes.slice(1)) line(g, x ? [[x, 8], [x, H - 8]] : [[8, y], [W - 8, y]], paint("faint"), 1);
      inPanes(g, (m, at, pane) => drawPane(g, m, at, pane));
      handles.forEach((handle, i) => {
        const {at} = pulls[i % pulls.length], pane = panes[Math.floor(i / pulls.length)];
        const [x, y] = isPoint(at) ? onPane(pane, at) : [-99, -99];
        Object.assign(handle.style, {left: `${x}px`, top: `${y}px`});
      });
    }
    /** Solutions, theta_star, the end, and their names. @param {Brush} g @param {PathData} m
        @param {(p: Point | null | undefined) => Point} at @param {Rectangle} pane */
    function drawPane(g, m, at, pane) {
      const {agents, theta_star} = plane, {guess} = m, many = agents.length > MAX_NAMED, dark = paint("ink");
      const tint = paint(m.name), star = isPoint(theta_star) ? at(theta_star) : null;
      /** @type {Label[]} */
      const labels = [];
      if (star) agents.forEach((a, c) => {  // theta_star's weights
        const width = a.weight ? clamp(1.6 * a.weight * agents.length, 0.6, 7) : 1;
        line(g, [at(a.own), star], colours[c], width, 0.22, many ? [] : [2, 5]);
      });
      agents.forEach((a, c) => {
        if (!isPoint(a.own)) return;
        const p = onPane(pane, a.own), out = distance(p, at(a.own)) > 1;
        if (many) discs(g, [p], 4, null, colours[c], 1.5);
        else discs(g, [p], onDrag ? 10 : 8, paint("paper"), colours[c], 3);
        if (!many && !out && onDrag) discs(g, [p], 3, colours[c]);
        const name = a.name && a.name.length > 22 ? `${a.name.slice(0, 20)}…` : a.name;
        const away = out && isPoint(theta_star) ? `, ${number(distance(a.own, theta_star), 2)} away` : "";
        if (!many && name) labels.push([p, name + away, dark, 13]);  // some agents' colours are too pale for words
      });
      if (star) {
        text(g, "★", star[0], star[1], dark, paint("paper"), `24px ${FONT}`, "center");
        labels.unshift([star, STAR, dark, 17]);
      }
      if (isPoint(guess)) {
        g.setLineDash([3, 3]);
        discs(g, [at(guess)], 9, null, dark, 1.6);
        g.setLineDash([]);
        labels.push([at(guess), "your guess", dark, 13, true]);
      }
      if (isPoint(m.end)) {
        const [x, y] = at(m.end);
        line(g, [[x - 6, y - 6], [x + 6, y + 6], null, [x - 6, y + 6], [x + 6, y - 6]], tint, 3);
        labels.push([[x, y], pane.w < 240 ? "ends here" : `${m.name} ends here`, tint, 13, true]);
      }
      if (isPoint(m.average[0])) labels.push([at(m.average[0]), "start", tint, 13]);
      const path = m.average.filter(isPoint).map(at).filter((p, t, all) => !t || distance(p, all[t - 1]) > 5);
      const taken = path.flatMap((p, t) => [1 / 3, 2 / 3, 1].map(s => between(path[Math.max(t - 1, 0)], p, s)));
      if (!many) for (const walk of [0, 1, 2].flatMap(r => m.walks?.[r] || []))
        for (let k = 0; k < walk.length; k += 6) taken.push(at([walk[k], walk[k + 1]]));
      const reason = isPoint(m.end) || !m.end_reason ? [] : wrapped(g, m.end_reason, pane.w - 20);
      const spots = [pane.y + pane.h - 12 - 15 * (reason.length - 1), pane.y + HEAD + 8];  // below, or above
      const marks = spots.map(y => labels.filter(([p]) => p[1] > y - 20 && p[1] < y + 15 * reason.length + 10).length);
      const first = spots[marks.indexOf(least(marks))];
      placeNames(g, pane, labels, taken, [pane.x, first - 10, pane.w, 15 * reason.length]);
      text(g, m.name, pane.x + 10, pane.y + 16, tint, paint("paper"), `600 ${pane.w < 170 ? 13 : 16}px ${FONT}`);
      reason.forEach((words, i) => text(g, words, pane.x + 10, first + 15 * i, paint("soft"), paint("paper")));
    }
    /** Each name stands where it hides least, off the line through `taken` and other words. @param {Brush} g
        @param {Rectangle} pane @param {Label[]} labels @param {Point[]} taken @param {number[]} words */
    function placeNames(g, pane, labels, taken, words) {
      const boxes = [[pane.x, pane.y, pane.w, 28, 24], [...words, 24],
        ...labels.map(([[x, y]]) => [x - 12, y - 12, 24, 24, 8])];
      for (const label of labels) {
        const [point, words, style, size, tied] = label;
        g.font = `600 ${size}px ${FONT}`;
        const w = g.measureText(words).width, h = size + 3, found = freePlace(label, w, h, pane, labels, boxes, taken);
        if (!found) continue;
        boxes.push([...found, w, h, 24]);
        const to = /** @type {Point} */ ([clamp(point[0], found[0], found[0] + w), clamp(point[1], found[1] + 2, found[1] + h - 2)]);
        const far = distance(point, to);
        if (far > (tied ? 12 : 30)) line(g, [between(point, to, 9 / far), between(point, to, 1 - 2 / far)], style, 1.2);
        text(g, words, found[0], found[1] + h / 2, style, paint("paper"), g.font);
      }
    }

    return {show, draw, ease, fit, zoom, resize: paper.resize, get ready() { return paper.ready; }};
  }
  return {create};
})();
