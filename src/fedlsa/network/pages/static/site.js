// A site's page: what was asked of it, what left, what its policy allows, what is left of its budget.

import { brief, budget, byId, card, clock, fill, make, pill, show, watch } from "./page.js";

/** What SiteState says (pages/__init__.py); null where there is none.
    @typedef {{number: number, time: number | null, round: number | null, numbers: number | null, rho: number | null,
      run: string, asked: string, left: string, text: string, hash: string, again: boolean}} Entry
    @typedef {{name: string, network: string, version: string, coordinator: string, connected: boolean, status: string,
      why: string[], waiting: Record<string, string[]>, totals: {answers: number, rounds: number, runs: number},
      limits: {answers: number, runs: number}, refusals: number, policy: string[], results: {name: string}[],
      budget: null | {unit: string, delta: number, total: number, spent: number}, entries: Entry[],
      ledger: {whole: boolean, text: string, head: string, numbers: number}}} SiteContent */

/** @type {Record<string, [string, string]>} */
const HEALTH = { ok: ["all well", "good"], degraded: ["look here", "fair"], dead: ["has stopped", "bad"] };
/** @type {Record<string, string>} */
const UNITS = { record: "of a row", site: "of the whole table" };

/** @param {SiteContent} now */
function drawTotals(now) {
  const { totals, limits } = now;
  const privacy = now.budget === null
    ? card("privacy budget left", "–", "the policy asks for no noise")
    : card("privacy budget left", budget(now.budget.total - now.budget.spent, now.budget.total), `ε ${UNITS[now.budget.unit]}, δ = ${brief(now.budget.delta)}`);
  fill(byId("cards"),
    card("coordinator", now.connected ? "connected" : "not reached", now.coordinator),
    card("answers", totals.answers, `of at most ${limits.answers}`),
    card("numbers in them", now.ledger.numbers, `${totals.rounds} rounds`),
    card("runs", totals.runs, `of at most ${limits.runs}`),
    card("refused", now.refusals, "orders beyond the policy"),
    privacy);
}

/** @param {Entry[]} entries */
function drawEntries(entries) {
  const rows = entries.map((entry) => {
    const refused = entry.left === "refusal";
    const asked = entry.round === null ? entry.asked : `${entry.asked}, round ${entry.round}`;
    const what = [refused ? "nothing: refused" : entry.left, entry.text, entry.again ? "(the same answer again)" : ""];
    return make("tr", "",
      make("td", "number", entry.number), make("td", "", clock(entry.time)), make("td", "", make("bdi", "", entry.run)),
      make("td", "", asked), make("td", refused ? "words warn" : "words", what.filter(Boolean).join(" · ")),
      make("td", "number", entry.numbers ?? "–"), make("td", "number", entry.rho === null ? "–" : brief(entry.rho)),
      make("td", "", make("code", "", entry.hash.slice(0, 12))));
  });
  fill(byId("entries").tBodies[0], ...rows);
  show(byId("none"), entries.length === 0);
}

/** @param {SiteContent} now */
function draw(now) {
  document.title = `${now.name} · fedlsa`;
  fill(byId("name"), now.name);
  fill(byId("whose"), `network ${now.network.slice(0, 16)} · fedlsa ${now.version}`);
  pill(byId("status"), ...(HEALTH[now.status] ?? [now.status, "calm"]));
  show(byId("warnings"), now.why.length > 0);
  const waiting = Object.entries(now.waiting).map(([run, words]) => make("li", "", `To allow it: fedlsa network allow FOLDER ${run}. ${words.join(" ")}`));
  fill(byId("warnings").querySelector("ul"), ...now.why.map((text) => make("li", "", text)), ...waiting);
  drawTotals(now);
  fill(byId("policy"), ...now.policy.map((text) => make("li", "", text)));
  pill(byId("whole"), now.ledger.whole ? `whole: ${now.ledger.text}` : `NOT whole: ${now.ledger.text}`, now.ledger.whole ? "good" : "bad");
  fill(byId("head"), now.ledger.head);
  const results = now.results.map((result) => result.name).join(", ");
  show(byId("results"), results !== "");
  fill(byId("results"), `Results of runs, in the folder results: ${results}.`);
  drawEntries(now.entries);
}

watch(draw);
