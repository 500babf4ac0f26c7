// The coordinator's page: where the run stands, who is there, who is late, what needs a person.

import { brief, budget, byId, bytes, card, clock, fill, make, pill, show, watch } from "./page.js";

/** What CoordinatorState says (pages/__init__.py); null where there is none.
    @typedef {[number, number]} Pair round, error
    @typedef {{name: string, state: string, end: string | null, plan: string, asked: Record<string, any>,
      planned: number | null, rounds: number, averages: number, seconds: number | null, error: number | null,
      epsilon: number | null, up: number, down: number, curve: Pair[],
      prediction: null | {label: string, points: Pair[]}}} Run
    @typedef {{name: string, present: boolean, standing: string, missed: number, up: number, down: number, refused: number,
      rho: number | null, budget: number | null}} Site
    @typedef {{time: number | null, kind: string, text: string}} RunEvent
    @typedef {{network: string, version: string, status: string, why: string[], run: Run | null, sites: Site[],
      events: RunEvent[], alarms: RunEvent[], other_runs: {name: string, end: string | null}[]}} CoordinatorContent */
/** @typedef {Record<string, string>} Words */

/** @type {Words} */
const STATES = { running: "good", over: "calm", failed: "bad", stopping: "fair", waiting: "fair", planning: "calm" };
/** @type {Words} */
const STANDINGS = { answered: "good", late: "fair", gone: "bad", "put aside": "bad" };
/** @type {Record<string, [string, string]>} */
const HEALTH = { ok: ["all well", "good"], degraded: ["look here", "fair"], dead: ["run loop dead", "bad"] };
const LOUD = ["refused", "alarm", "failed"];
/** @type {Words} */
const NAMES = { local_steps: "local steps", step_size: "step size", min_sites: "least sites of a round" };

/** @param {Run | null} run @param {Site[]} sites */
function drawRun(run, sites) {
  const here = sites.filter((site) => site.present).length;
  const cards = [card("sites connected", `${here} of ${sites.length}`, late(sites))];
  if (run !== null) {
    const planned = run.planned === null ? "" : `of at most ${run.planned}`;
    const vain = run.rounds - run.averages;
    cards.unshift(card("rounds averaged", run.averages, [planned, vain > 0 ? `${vain} in vain` : ""].filter(Boolean).join(", ")));
    cards.push(card("estimated error", brief(run.error), run.epsilon === null ? "" : `asked for: ${brief(run.epsilon)}`));
    cards.push(card("last round", run.seconds === null ? "–" : `${brief(run.seconds)} s`));
    cards.push(card("moved", bytes(run.up + run.down), `${bytes(run.up)} up, ${bytes(run.down)} down`));
    cards.push(card("privacy budget left", ...leastBudget(sites, run)));
  }
  fill(byId("run-head"), run === null ? "No run yet" : make("bdi", "", run.name));
  fill(byId("run-end"), run === null ? "fedlsa network run begins one." : (run.end ?? ""));
  show(byId("run-state"), run !== null);
  if (run !== null) pill(byId("run-state"), run.state, STATES[run.state] ?? "calm");
  const planned = run?.planned ?? 0;
  show(byId("progress"), planned > 0);
  Object.assign(byId("progress"), { max: planned || 1, value: run?.averages ?? 0 });
  fill(byId("cards"), ...cards);
}

/** @param {Site[]} sites */
function late(sites) {
  const names = sites.filter((site) => site.standing === "late").map((site) => site.name);
  return names.length === 0 ? "none late" : `late: ${names.slice(0, 4).join(", ")}${names.length > 4 ? ", ..." : ""}`;
}

/** @param {Site[]} sites @param {Run} run @returns {[string, string]} */
function leastBudget(sites, run) {
  const known = sites.flatMap(({ name, budget, rho }) => (budget === null || rho === null ? [] : [{ name, budget, rho }]));
  if (known.length === 0) return ["–", run.asked.noise === undefined ? "this run adds no noise" : "no site has said yet"];
  const least = known.reduce((a, b) => (a.budget - a.rho < b.budget - b.rho ? a : b));
  return [brief(Math.max(0, least.budget - least.rho)), `of ρ = ${brief(least.budget)}, least at ${least.name}`];
}

/** @param {Site[]} sites */
function drawSites(sites) {
  const rows = sites.map((site) => {
    const head = make("th", "", make("bdi", "", site.name));
    head.scope = "row";
    const left = site.budget !== null && site.rho !== null ? budget(site.budget - site.rho, site.budget) : "–";
    return make("tr", "", head,
      make("td", "", make("span", `pill ${site.present ? "good" : "bad"}`, site.present ? "yes" : "no")),
      make("td", "", make("span", `pill ${STANDINGS[site.standing] ?? "calm"}`, site.standing)),
      make("td", "number", site.missed), make("td", "number", site.refused),
      make("td", "number", bytes(site.up)), make("td", "number", bytes(site.down)), make("td", "", left));
  });
  fill(byId("sites").tBodies[0], ...rows);
}

/** @param {Run | null} run */
function drawChart(run) {
  const box = byId("chart"), note = byId("chart-note"), some = run !== null && run.curve.length > 0;
  show(byId("none-estimated"), !some);
  show(box, some);
  show(note, some);
  if (!some) return;
  const points = (/** @type {Pair[]} */ pairs) => ({ x: pairs.map((p) => p[0]), y: pairs.map((p) => p[1]) });
  const [from, to] = [run.curve[0], run.curve[run.curve.length - 1]], { prediction, epsilon } = run;
  /** @type {LineData[]} */
  const lines = [{ ...points(run.curve), label: "estimated, from how far θ still moves", colour: "SCAFFLSA" }];
  if (prediction !== null) lines.unshift({ ...points(prediction.points), label: prediction.label, colour: "FedLSA", dash: "dashed" });
  if (epsilon !== null) {
    const most = Math.max(1, ...lines.flatMap((line) => line.x ?? []));
    lines.push({ x: [0, most], y: [epsilon, epsilon], label: `asked for: ${brief(epsilon)}`, colour: "Scaffnew", dash: "dotted" });
  }
  const label = `Estimated error on a logarithmic scale: ${brief(from[1])} after round ${from[0]}, ${brief(to[1])} after round ${to[0]}.`;
  /** @type {ChartData} */
  const chart = { x: { label: "rounds averaged", low: 0 }, y: { label: "distance from the solution", scale: "log" }, lines };
  FedLSAChart.draw(box, chart, { label, height: 280 });
  FedLSAChart.legend(note, [chart]);
}

/** @param {CoordinatorContent} now */
function draw(now) {
  fill(byId("whose"), `network ${now.network.slice(0, 16)} · fedlsa ${now.version}`);
  pill(byId("status"), ...(HEALTH[now.status] ?? [now.status, "calm"]));
  show(byId("warnings"), now.why.length > 0 || now.alarms.length > 0);
  const alarms = now.alarms.map((alarm) => make("li", "", clock(alarm.time), " ", alarm.text));
  const told = new Set(now.alarms.map((alarm) => alarm.text));
  const others = now.why.filter((text) => !told.has(text)).map((text) => make("li", "", text));
  fill(byId("warnings").querySelector("ul"), ...others, ...alarms);
  drawRun(now.run, now.sites);
  drawSites(now.sites);
  drawChart(now.run);
  const kind = (/** @type {RunEvent} */ event) => (LOUD.includes(event.kind) ? "event warn" : "event");
  fill(byId("events"), ...now.events.map((event) => make("li", kind(event), clock(event.time), make("span", "", event.text))));
  fill(byId("plan"), now.run === null ? "" : now.run.plan);
  const asked = now.run === null ? [] : Object.entries(now.run.asked);
  fill(byId("facts"), ...asked.map(([name, value]) => make("div", "", make("dt", "", NAMES[name] ?? name), make("dd", "", value))));
  show(byId("others-box"), now.other_runs.length > 0);
  fill(byId("others"), ...now.other_runs.map((run) => make("li", "", make("b", "", run.name), run.end === null ? "" : `: ${run.end}`)));
}

watch(draw);
