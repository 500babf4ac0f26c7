/* Federated linear stochastic approximation in the plane: the mathematics, the story, the laboratory.

   Agent c has the system A_c (theta - own_c) = 0 and sees it with additive noise: b_c + e with covariance noise^2 I.
   theta_star solves the weighted average of the systems. Tests hold everything here to the Python library. */
"use strict";

/** @typedef {{agents: number, H: number, eta: number, rounds: number, differ: number, noise: number, methods: string[],
      bands?: string, shape: Point[], kept: Record<number, Point[]>, weights: number[]}} PlayState
      shape: own solutions where `differ` is 1; kept: those of other numbers of agents; weights: of all that there can be */

// ---------------------------------------------------------------------------------------------- the mathematics
var FedLSAPlay = (() => {
  const sum = list => list.reduce((a, b) => a + b, 0);
  const times = (M, v) => M.map(row => sum(row.map((m, j) => m * v[j])));
  const transposed = M => M[0].map((_, j) => M.map(row => row[j]));
  const plus = (M, N, s = 1) => M.map((row, i) => row.map((m, j) => m + s * N[i][j]));
  const scaled = (M, s) => M.map(row => row.map(m => s * m));
  const zeros = (n, m) => Array.from({length: n}, () => new Array(m).fill(0));
  const norm2 = v => sum(v.map(x => x * x));
  const minus = (v, u) => v.map((x, i) => x - u[i]);
  const I2 = [[1, 0], [0, 1]];
  function product(M, N) {
    return M.map(row => {
      const out = new Array(N[0].length).fill(0);
      N.forEach((other, k) => { for (let j = 0, m = row[k]; j < out.length; j++) out[j] += m * other[j]; });
      return out;
    });
  }
  function solve(M, v) {  // elimination with pivots
    const rows = M.map((row, i) => [...row, v[i]]), n = v.length;
    for (let j = 0; j < n; j++) {
      rows.push(...rows.splice(j).sort((p, q) => Math.abs(q[j]) - Math.abs(p[j])));
      for (let i = j + 1; i < n; i++) rows[i] = rows[i].map((x, k) => x - rows[i][j] / rows[j][j] * rows[j][k]);
    }
    const x = new Array(n).fill(0);
    for (let i = n - 1; i >= 0; i--) x[i] = (rows[i][n] - sum(x.map((y, j) => rows[i][j] * y))) / rows[i][i];
    return x;
  }

  /* Own solutions on a ring. An agent sees one direction well and the other badly, and which one differs from agent to
     agent: without that there would be no bias. */
  const angle = (c, N) => 2 * Math.PI * c / N + 0.4;
  /** @param {number} N @returns {Point[]} */
  const ring = N => Array.from({length: N}, (_, c) => {
    const radius = 1.3 + 0.3 * Math.cos(5 * c + 1);
    return [radius * Math.cos(angle(c, N)), radius * Math.sin(angle(c, N))];
  });
  function problem(state) {
    const N = state.agents, all = sum(state.weights.slice(0, N));
    const agents = state.shape.slice(0, N).map((p, c) => {
      const tilt = angle(c, N) / 2 + 0.9, [cos, sin] = [Math.cos(tilt), Math.sin(tilt)], [well, badly] = [1, 0.15];
      const cross = (well - badly) * cos * sin;
      const A = [[well * cos * cos + badly * sin * sin, cross], [cross, well * sin * sin + badly * cos * cos]];
      const own = p.map(v => state.differ * v);
      return {A, own, b: times(A, own), weight: state.weights[c] / all};
    });
    return {agents, ...averaged(agents, agents.map(a => a.weight))};
  }
  function averaged(agents, w) {
    const A_bar = agents.map((a, c) => scaled(a.A, w[c])).reduce((M, N) => plus(M, N));
    return {A_bar, theta_star: solve(A_bar, [0, 1].map(i => sum(agents.map((a, c) => w[c] * a.b[i]))))};
  }

  /* The weights (sum 1, none below `low`) with which theta_star is at p, or as near to it as it comes; of those that do,
     the nearest to `from`. They minimise |theta_star(w) - p|^2 + small |w - from|^2, by Gauss-Newton: with w_c, theta_star
     moves by A_bar^-1 A_c (own_c - theta_star). A step's best w is max(low, from + C m), with three multipliers m. */
  function weightsFor(agents, from, p, low) {
    const dot = (v, u) => v[0] * u[0] + v[1] * u[1] + v[2] * u[2];
    const off = w => norm2(minus(averaged(agents, w).theta_star, p)), small = 1e-7 * (1 + Math.sqrt(off(from)));
    const cost = w => off(w) + small * norm2(minus(w, from));
    for (let w = from, now = cost(w), k = 0; ; k++) {
      const {A_bar, theta_star} = averaged(agents, w);
      const C = agents.map(({A, own}) => [...solve(A_bar, times(A, minus(own, theta_star))), 1]);
      let m = [0, 0, 0], free = [], before;
      do {
        [before, free] = [String(free), C.map((row, c) => from[c] + dot(row, m) > low)];
        const M = [[small, 0, 0], [0, small, 0], [0, 0, 1e-15]], rest = [...minus(p, theta_star), 1];
        C.forEach((row, c) => row.forEach((x, i) => {
          rest[i] -= x * (free[c] ? from[c] : low);
          if (free[c]) row.forEach((y, j) => { M[i][j] += x * y; });
        }));
        m = solve(M, rest);
      } while (String(free) !== before && k++ < 200);
      const next = C.map((row, c) => Math.max(low, from[c] + dot(row, m))), all = sum(next);
      let s = 1, tried = next.map(v => v / all);
      for (; cost(tried) > now && s > 1e-6; s /= 2) tried = w.map((v, c) => v + s / 2 * (next[c] / all - v));
      if (!(cost(tried) < now * (1 - 1e-10)) || k > 200) return w;
      [w, now] = [tried, cost(tried)];
    }
  }

  /* Rounds without noise. gain 0: FedLSA (Algorithm 1); gain 1 / (eta H): SCAFFLSA (Algorithm 2).
     average : T + 1 points; walks : T x N flat lists of points + 1 moments of the round; xi : N, at the end */
  function meanRounds(agents, eta, H, rounds, gain, start, points = 1, xi = agents.map(() => [0, 0])) {
    const average = [start], walks = [];
    for (let t = 0; t < rounds; t++) {
      const round = agents.map(({A: [[a, d], [, e]], b}, c) => {
        const walk = [...average[t]], u = b[0] + xi[c][0], v = b[1] + xi[c][1];
        for (let h = 0, k = 1, [x, y] = walk; k <= points; k++) {
          for (const until = Math.round(k * H / points); h < until; h++) {
            const right = a * x + d * y - u, up = d * x + e * y - v;
            x -= eta * right;
            y -= eta * up;
          }
          walk.push(x, y);
        }
        return walk;
      });
      const ends = round.map(walk => walk.slice(-2));
      const theta = [0, 1].map(i => sum(agents.map((a, c) => a.weight * ends[c][i])));
      xi = xi.map((v, c) => v.map((s, i) => s + gain * (theta[i] - ends[c][i])));
      average.push(theta);
      walks.push(round);
    }
    return {average, walks, xi};
  }

  /* One round of the deviations z = (theta, xi_1, ..., xi_N) from their means: z <- M z + noise of covariance Q, where
     observations have unit noise. M is what a round without noise makes of the unit vectors. */
  function roundOfNoise(agents, eta, H, gain) {
    const n = gain ? 2 + 2 * agents.length : 2, Q = zeros(n, n), still = agents.map(a => ({...a, b: [0, 0]}));
    const M = transposed(zeros(n, n).map((z, i) => {
      z[i] = 1;
      const xi = agents.map((_, c) => gain ? z.slice(2 + 2 * c, 4 + 2 * c) : [0, 0]);
      const next = meanRounds(still, eta, H, 1, gain, z.slice(0, 2), 1, xi);
      return [...next.average[1], ...next.xi.flat()].slice(0, n);
    }));
    agents.forEach(({A, weight}, c) => {  // the noise in theta_hat_c enters theta and each xi
      const V = kept(`noise of agent ${c}`, [A, eta, H], () => localNoise(A, eta, H));
      const enters = k => k === 0 ? weight : gain * (weight - (k === c + 1 ? 1 : 0));
      for (let i = 0; i < n; i++)
        for (let j = 0; j < n; j++) Q[i][j] += enters(i >> 1) * enters(j >> 1) * V[i % 2][j % 2];
    });
    return {M, Q};
  }
  function localNoise(A, eta, H) {  // covariance of the noise in theta_hat_c
    let P = I2, V = zeros(2, 2);
    for (let h = 0; h < H; h++, P = product(P, plus(I2, A, -eta))) V = plus(V, product(P, transposed(P)), eta ** 2);
    return V;
  }
  const carried = (M, C) => product(product(M, C), transposed(M));
  const spread = C => C[0][0] + C[1][1];
  /* G_t, the first two rows of M^t, say what is left in theta of z_0, and of each round's noise t rounds later.
     left : T + 1 matrices, of the part of z_0 that is theta */
  function remember({M, Q}, rounds) {
    const variance = [0], left = /** @type {number[][][]} */ ([I2]);
    for (let t = 0, G = [0, 1].map(i => M.map((_, j) => +(i === j))); t < rounds; t++) {
      variance.push(variance[t] + spread(carried(G, Q)));
      G = product(G, M);
      left.push(G.map(row => row.slice(0, 2)));
    }
    return {variance, left};
  }
  function limitVariance({M, Q}) {  // sum of M^k Q M^k', twice as many terms each time; Infinity where it has no limit
    for (let k = 0, C = Q; k < 40; k++) {
      const more = carried(M, C);
      C = plus(C, more);
      if (spread(more) <= 1e-10 * spread(C)) return spread(C);  // what comes after is smaller than its square
      if (!(spread(more) < 1e30)) break;
      M = product(M, M);
    }
    return Infinity;
  }

  const newest = /** @type {Record<string, {key: string, value: any}>} */ ({});  // while something is dragged, what does not depend on it is not computed again
  function kept(name, key, make) {
    if (newest[name]?.key !== String(key)) newest[name] = {key: String(key), value: make()};
    return newest[name].value;
  }

  const START = [-1.4, -2.4];  // from here no error falls below FedLSA's floor on its way

  /** Everything the picture shows of a state. @param {PlayState} state
      @returns {SceneData & {plane: PlaneData, error: ErrorData}} */
  function picture(state) {
    const {agents, theta_star} = problem(state), {eta, H, rounds, noise} = state;
    const plane = /** @type {PathData[]} */ ([]), error = /** @type {CurveData[]} */ ([]);
    for (const name of state.methods) {
      const gain = name === "SCAFFLSA" ? 1 / (eta * H) : 0;
      const run = meanRounds(agents, eta, H, rounds, gain, START, Math.min(H, 24));
      const unit = kept(name, [eta, H, rounds, agents.map(a => [a.A, a.weight])], () => {  // of noise 1
        const round = roundOfNoise(agents, eta, H, gain);
        return {M: round.M, ...remember(round, rounds), limit: limitVariance(round)};
      });
      const stable = unit.limit < Infinity;
      const variance = unit.variance.map(v => noise ** 2 * v);
      const off = run.average.map(v => minus(v, theta_star));
      const parts = {start: /** @type {number[]} */ ([]), drift: /** @type {number[]} */ ([]), noise: variance};
      off.forEach((v, t) => {  // the mean is start + drift; its square is shared between them as their squares are
        const s = times(unit.left[t], off[0]), d = minus(v, s), share = norm2(d) / (norm2(d) + norm2(s) || 1);
        parts.start.push((1 - share) * norm2(v));
        parts.drift.push(share * norm2(v));
      });
      const total = off.map((v, t) => norm2(v) + variance[t]), [, moved] = meanRounds(agents, eta, H, 1, 0, [0, 0]).average;
      const end = /** @type {Point | null} */ (  // theta_star + bias: a round leaves it there
        gain || !stable ? null : solve(plus(I2, unit.M, -1), moved));
      const floor = (end ? norm2(minus(end, theta_star)) : 0) + noise ** 2 * unit.limit;
      const bad = stable ? -1 : total.findIndex(v => !(v < 1e6 * (total[0] + 1)));
      plane.push({name, ...run, end, scatter: variance.map(Math.sqrt),
                  end_reason: stable ? "" : "No end: these steps are too long."});
      error.push({name, total, parts, floor: stable && floor > 1e-25 ? floor : null, unstable_from: bad < 0 ? null : bad});
    }
    return {
      rounds,
      plane: {caption: "Paths are means over the noise; the pale disc shows how far a noisy run strays from the average.",
              theta_star: /** @type {Point} */ (theta_star), methods: plane,
              agents: agents.map(({own, weight}, c) => ({name: `agent ${c + 1}`, own, weight}))},
      error: {x_label: "rounds", x: plane[0].average.map((_, t) => t), bands_of: state.bands || state.methods[0], methods: error},
    };
  }
  return {problem, picture, ring, weightsFor, START};
})();

// ---------------------------------------------------------------------------------------------------- the page
(() => {
  const by = id => /** @type {any} */ (document.getElementById(id));
  document.documentElement.classList.toggle("embed", location.search === "?embed");  // the picture alone, in a frame
  const MOST = 12, FARTHEST = 1e6;  // agents; a number of an own solution
  const HOME = {agents: 3, H: 20, eta: 0.15, rounds: 15, differ: 1, noise: 0.3, methods: ["FedLSA", "SCAFFLSA"]};
  /** @param {Partial<PlayState>} changes @returns {PlayState} */
  const fresh = changes => {
    const state = {...HOME, ...changes};
    return {...state, shape: FedLSAPlay.ring(state.agents), kept: {}, weights: new Array(MOST).fill(1)};
  };
  const SECONDS = 6;  // of the animation with which the page begins
  const halfway = (p, q) => p.map((v, i) => (v + q[i]) / 2);
  const atStar = plane => plane.theta_star;
  /** @typedef {{name: string, state: Partial<PlayState>, text: string, peek: number, question?: string, guesses: string[],
        right: number, answer: string, places: (null | ((plane: PlaneData) => Point | null | undefined))[]}} Step
        peek: rounds that are shown before a guess; places: where each guess has the last method end, if it says so */
  /** @type {Step[]} */
  const STORY = [
    {name: "Start", state: {}, peek: 0, guesses: [], right: 0, answer: "", places: [],
     text: "Three agents look for one shared answer, θ⋆ (theta star). Each walks towards its own solution (its circle), then the server averages. With FedLSA they end in the wrong place; with SCAFFLSA they do not. Why? Drag a circle, or guess your way through five steps."},
    {name: "One agent", state: {agents: 1, H: 5, eta: 0.3, noise: 0, methods: ["FedLSA"], rounds: 20}, peek: 1,
     text: "One agent takes 5 small steps on its own data, reports, and goes on from there. Its own solution is θ⋆, for there is nobody else.",
     question: "Without noise, how close does it come?", guesses: ["All the way to θ⋆", "It stops a little way off"], right: 0, places: [],
     answer: "It goes all the way. Soon each round takes away the same share of what is left, so the error falls as a straight line on this scale. Nothing but the start is left in it."},
    {name: "Two disagree", state: {agents: 2, H: 1, eta: 0.3, noise: 0, methods: ["FedLSA"], rounds: 30}, peek: 2,
     text: "Two agents want different things. Each takes one step towards its own circle, then the server averages the two.",
     question: "Where does the average settle?", guesses: ["Halfway between the circles", "At θ⋆, which is elsewhere", "With one of the agents"], right: 1,
     places: [({agents: [a, b]}) => halfway(a.own, b.own), null, ({agents: [a]}) => a.own],
     answer: "It settles at θ⋆, which solves the average of their systems. That is not the midpoint: each agent sees one direction sharply and the other dimly, and counts for more where it sees well."},
    {name: "More steps", state: {agents: 2, H: 20, noise: 0, methods: ["FedLSA"], rounds: 15}, peek: 1,
     text: "Communication is dear, so now each agent takes 20 steps before it reports. In one round each goes a long way towards its circle.",
     question: "What do 20 local steps change?", guesses: ["Faster, and just as exact", "Faster at first, but it misses θ⋆", "Nothing"], right: 1,
     places: [atStar, null, atStar],
     answer: "It is faster at first, and then it misses. At home an agent forgets what the others want: the paths bend and part, and their average is no longer a step towards θ⋆. This is client drift."},
    {name: "The floor", state: {agents: 3, H: 20, noise: 0.3, methods: ["FedLSA"], rounds: 30}, peek: 2,
     text: "Three agents, 20 local steps, and now some noise in what they see. The error falls for a few rounds.",
     question: "Will more rounds bring it to θ⋆?", guesses: ["Yes, it only takes longer", "No, it ends at a floor"], right: 1, places: [atStar, null],
     answer: "It ends at the cross, which theory gives in advance (dashed). The bands say why: the start is soon forgotten, the drift stays for ever, and the noise lies far below it."},
    {name: "Control variates", state: {agents: 3, H: 20, noise: 0.3, rounds: 15, bands: "SCAFFLSA"}, peek: 1,
     text: "SCAFFLSA lets each agent keep one arrow: how far it ended from the average. It adds a part of this to each of its next steps.",
     question: "With the same 20 local steps, where does SCAFFLSA end?", guesses: ["At the same cross", "Half as far from θ⋆", "At θ⋆, up to noise"], right: 2,
     places: [plane => plane.methods[0].end, plane => halfway(plane.theta_star, plane.methods[0].end), null],
     answer: "It ends at θ⋆. The arrows learn by how much each agent disagrees and cancel it, so that the walks shrink and nobody leaves. Only noise is left, and shorter steps or more agents make it smaller."},
  ];
  const LAB = STORY.length;
  /** @type {["agents" | "H" | "eta" | "rounds" | "differ" | "noise", string, number[]][]} */
  const SLIDERS = [
    ["agents", "agents", Array.from({length: MOST}, (_, i) => i + 1)],
    ["H", "local steps in a round", [1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100]],
    ["eta", "step size", [0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 2.2]],
    ["rounds", "rounds", [5, 10, 15, 20, 25, 30, 40, 60, 80, 100]],
    ["differ", "how much they differ", [0, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.3, 1.6, 2]],
    ["noise", "noise", [0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5]],
  ];
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  let step = 0, state = fresh({}), guessed = -1, shown = FedLSAPlay.picture(state), asked = 0, writing = 0;
  let weighed = /** @type {number[]} */ ([]);
  const scene = FedLSAScene.create(by("scene"), {autoplay: true, onDrag: drag, onStar: weigh});

  /** The picture follows the state. how.keep: the round cursor stays where it is; how.read: an address is shown
      @param {{keep?: boolean, read?: boolean}} [how] */
  function update(how = {}) {
    const story = STORY[step], hidden = story && story.question && guessed < 0;
    shown = FedLSAPlay.picture(hidden ? {...state, rounds: story.peek} : state);
    const {methods} = shown.plane, place = story && guessed >= 0 && guessed !== story.right && story.places[guessed];
    if (place) methods[methods.length - 1].guess = place(shown.plane);
    if (hidden) {  // nothing gives the answer away
      for (const m of methods) m.end = null;
      for (const m of shown.error.methods) m.floor = null;
    }
    scene.show({...shown, ...step === 0 && {seconds: SECONDS}}, how.keep ? how : {});
    clearTimeout(writing);  // browsers bear few changes of the address: it waits for the finger to rest
    if (how.keep) writing = setTimeout(() => writeAddress("pushState"), 400);
    else writeAddress(how.read ? "replaceState" : "pushState");
  }
  function follow() {  // as often as the screen is drawn, however often the finger moves
    asked = asked || requestAnimationFrame(() => { asked = 0; update({keep: true}); });
  }
  function drag(c, at) {
    if (!state.differ) { state.differ = 1; state.shape = state.shape.map(() => [0, 0]); fillLab(); }
    state.shape[c] = at.map(v => Math.min(FARTHEST, Math.max(-FARTHEST, v / state.differ)));
    touched();
  }
  function weigh(at, first) {  // theta_star goes along with the finger: its weights change, as little as may be
    const {agents} = FedLSAPlay.problem(state), N = agents.length;
    if (first) weighed = agents.map(a => a.weight);
    const [low, high] = [WEIGHTS[0], WEIGHTS[WEIGHTS.length - 1]], share = low / (high + (N - 1) * low);  // the least of one agent
    const w = FedLSAPlay.weightsFor(agents, weighed, at, Math.min(share, ...weighed));
    const unit = Math.min(Math.max(N, low / Math.min(...w)), high / Math.max(...w));  // they sum to N where sliders allow it
    w.forEach((v, c) => { state.weights[c] = Math.min(high, Math.max(low, unit * v)); });
    by("weights").parentElement.open = true;
    showWeights();
    touched();
  }
  function touched() { by("moved").hidden = step === LAB || step === 0; follow(); }
  function restore() { state = fresh(STORY[step].state); by("moved").hidden = true; update({keep: true}); }

  // ---- the story
  /** @param {number} to @param {boolean} focus its heading gets the focus @param {boolean} [read] from the address */
  function go(to, focus, read) {
    step = to;
    guessed = -1;
    const lab = step === LAB, story = STORY[step];
    [by("story").hidden, by("lab").hidden] = [lab, !lab];
    by("steps").querySelectorAll("button").forEach((b, i) => b.setAttribute("aria-current", i === step ? "step" : "false"));
    if (!lab) {
      state = fresh(story.state);
      by("heading").textContent = step ? `${step}. ${story.name}` : "One answer, many agents";
      by("text").textContent = story.text;
      by("question").textContent = story.question || "";
      by("answer").textContent = "";
      by("moved").hidden = true;
      by("guesses").replaceChildren(...story.guesses.map((textContent, i) =>
        Object.assign(document.createElement("button"), {type: "button", textContent, onclick: () => guess(i)})));
    }
    fillLab();
    ready();
    scene.fit();
    update({read});
    if (!lab && story.question) { scene.pause(); scene.setRound(story.peek); }
    else if (calm()) scene.setRound(Infinity);  // the end at once
    else if (focus) { scene.setRound(0); scene.play(); }
    if (!focus) return;
    (lab ? by("lab").querySelector("h2") : by("heading")).focus({preventScroll: true});
    scrollTo(0, 0);
  }
  function ready() {  // what can be done next
    const story = STORY[step];
    if (!story) return;
    by("next").hidden = !!story.question && guessed < 0;
    by("next").textContent = step === 0 ? "Begin the story" : step < LAB - 1 ? "Next" : "To the laboratory";
    by("to-lab").hidden = step === LAB - 1;
  }
  function guess(i) {
    const story = STORY[step];
    guessed = i;
    restore();  // the answer is about the step's own picture
    [...by("guesses").children].forEach((b, k) => {
      b.setAttribute("aria-pressed", String(k === i));
      b.className = k === story.right ? "right" : "";
      const words = k === i && k === story.right ? "your guess, and so it is" : k === i ? "your guess" : "so it is";
      b.replaceChildren(story.guesses[k], ...k === i || k === story.right
        ? [Object.assign(document.createElement("span"), {textContent: words})] : []);
    });
    by("answer").textContent = `${i === story.right ? "Right." : "Not so."} ${story.answer}`;
    ready();
    if (calm()) scene.setRound(state.rounds); else { scene.setRound(0); scene.play(); }
    by("next").scrollIntoView({block: "nearest"});  // at once: while it glides, Tab could lead out of sight
  }

  // ---- the laboratory
  /** @param {string} text @param {number[]} stops @param {() => number} get @param {(v: number) => void} set */
  function range(text, stops, get, set) {
    const label = document.createElement("label");
    label.innerHTML = `<span>${text}</span><span aria-hidden="true"></span><input type="range" max="${stops.length - 1}">`;
    const [, output] = label.children, input = /** @type {HTMLInputElement} */ (label.lastElementChild);
    input.oninput = () => { set(stops[+input.value]); show(); follow(); };
    const show = () => {
      input.value = String(FedLSAAxes.nearest(stops, get()));
      output.textContent = String(+get().toPrecision(3));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    return {label, show};
  }
  const sliders = SLIDERS.map(([key, text, stops]) => range(text, stops, () => state[key], v => {
    state.kept[state.agents] = state.shape;
    state[key] = v;
    state.shape = state.kept[state.agents] || FedLSAPlay.ring(state.agents);  // as they were when there were as many
    showWeights();
  }));
  const WEIGHTS = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10];
  const weights = Array.from({length: MOST}, (_, c) =>
    range(`weight of agent ${c + 1}`, WEIGHTS, () => state.weights[c], v => { state.weights[c] = v; }));
  const boxes = [...by("methods").querySelectorAll("input")];
  by("methods").onchange = e => {
    if (boxes.every(box => !box.checked)) e.target.checked = true;  // one is always shown
    state.methods = HOME.methods.filter((_, i) => boxes[i].checked);
    follow();
  };
  by("sliders").append(...sliders.map(s => s.label));
  by("weights").append(...weights.map(s => s.label));
  const showWeights = () => weights.forEach((s, c) => { s.label.hidden = c >= state.agents; s.show(); });
  function fillLab() {
    sliders.forEach(s => s.show());
    showWeights();
    boxes.forEach((box, i) => { box.checked = state.methods.includes(HOME.methods[i]); });
  }

  // ---- the address carries the state: settings that differ from those of the start
  let written = location.hash;
  /** @param {"pushState" | "replaceState"} how */
  function writeAddress(how) {
    if (location.hash !== written) return;  // the reader has just given another one, which is about to be read
    const out = new URLSearchParams(), round = v => +v.toPrecision(4);
    if (step < LAB) { if (step) out.set("step", String(step)); } else {
      out.set("lab", "1");
      for (const [key] of SLIDERS) if (state[key] !== HOME[key]) out.set(key, String(state[key]));
      if (state.methods.length < HOME.methods.length) out.set("methods", state.methods.join());
      const own = state.shape.flat().map(round).join();
      if (own !== FedLSAPlay.ring(state.agents).flat().map(round).join()) out.set("own", own);
      const w = state.weights.slice(0, state.agents);
      if (w.some(v => v !== 1)) out.set("weights", w.map(round).join());
    }
    const hash = out.toString().replaceAll("%2C", ","), here = location.pathname + location.search;
    if (hash !== location.hash.slice(1)) history[how](null, "", hash ? `#${hash}` : here);
    written = location.hash;
  }
  /** @param {boolean} focus */
  function readAddress(focus) {
    written = location.hash;
    const asked = new URLSearchParams(location.hash.slice(1)), list = key => (asked.get(key) || "").split(",");
    const number = text => text.trim() ? Number(text) : NaN;  // nothing is not 0
    if (!asked.has("lab")) return go(Math.min(LAB - 1, Math.max(0, Math.floor(+(asked.get("step") || 0)) || 0)), focus, true);
    const changes = /** @type {Partial<PlayState>} */ ({});
    for (const [key, , stops] of SLIDERS) {
      const v = number(asked.get(key) || ""), whole = stops.every(Number.isInteger);
      if (v >= stops[0] && v <= stops[stops.length - 1] && !(whole && v % 1)) changes[key] = v;
    }
    const methods = HOME.methods.filter(name => list("methods").includes(name));
    if (methods.length) changes.methods = methods;
    state = fresh(changes);
    const own = list("own").map(number), w = list("weights").map(number), N = state.agents;
    if (own.length === 2 * N && own.every(v => Math.abs(v) <= FARTHEST))
      state.shape = state.shape.map((_, c) => /** @type {Point} */ (own.slice(2 * c, 2 * c + 2)));
    if (w.length === N && w.every(v => v >= WEIGHTS[0] && v <= WEIGHTS[WEIGHTS.length - 1]))
      w.forEach((v, c) => { state.weights[c] = v; });
    go(LAB, focus, true);
  }

  by("steps").querySelectorAll("button").forEach((made, i) => { made.onclick = () => go(i, true); });
  by("next").onclick = () => go(step + 1, true);
  by("to-lab").onclick = () => go(LAB, true);
  by("restore").onclick = restore;
  by("reset").onclick = () => { state = fresh({}); fillLab(); scene.fit(); update(); };
  by("link").onclick = async () => {
    clearTimeout(writing);
    writeAddress("pushState");
    try { await navigator.clipboard.writeText(location.href); by("copied").textContent = "Link copied."; }
    catch { by("copied").textContent = "The address of this page is the link."; }
  };
  by("lab").onsubmit = e => e.preventDefault();
  new ResizeObserver(() => {  // what gets the focus is not to hide under the picture
    const over = getComputedStyle(by("scene")).position === "sticky" ? by("scene").offsetHeight : 0;
    document.documentElement.style.scrollPaddingTop = `${over}px`;
  }).observe(by("scene"));
  addEventListener("hashchange", () => readAddress(true));
  readAddress(false);
  /** @type {any} */ (window).fedlsaPlay = {scene, get state() { return state; }, get shown() { return shown; }};
})();
