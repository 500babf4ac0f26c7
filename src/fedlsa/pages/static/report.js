/* The report's page: its charts, filters that stand in the address, one button that opens or closes all entries, tables
   that say where they go on. Without it text, verdicts and tables are there. A classic script; it needs chart.js. */
"use strict";
(() => {
  /** @param {string} what @param {ParentNode} [inside] @returns {any[]} */
  const all = (what, inside = document) => [...inside.querySelectorAll(what)];
  const by = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

  /** @type {Record<string, ChartData>} */
  const charts = JSON.parse(by("charts").textContent);
  for (const place of all("[data-chart]")) {
    const plain = place.className === "thumb";
    FedLSAChart.draw(place, charts[place.dataset.chart], plain ? {plain, height: 84} : {});
  }
  for (const place of all("[data-charts]"))
    FedLSAChart.legend(place, place.dataset.charts.trim().split(/\s+/).map((/** @type {string} */ id) => charts[id]));

  // ---- filters: an entry is shown where it has what every filter asks for
  const form = by("filters"), fold = by("fold"), entries = all(".entry");
  const shown = () => entries.filter(entry => !entry.hidden);
  const counted = (/** @type {number} */ n) => `${n} ${n === 1 ? "entry" : "entries"}`;
  function nameFold() {
    const closed = shown().some(entry => !entry.firstElementChild.open);
    fold.textContent = `${closed ? "Open" : "Close"} all ${counted(shown().length)}`;
    fold.disabled = !shown().length;
  }
  /** What is asked for, by the names of the filters. */
  function filter() {
    const asked = [...new FormData(form)].map(([name, value]) => [name, String(value)]).filter(([, value]) => value);
    for (const entry of entries)
      entry.hidden = !asked.every(([name, value]) => entry.dataset[name].split(" ").includes(value));
    const found = shown().length, every = found === entries.length;
    const open = new Set(shown().map(entry => entry.dataset.experiment));
    for (const part of all("section.kind")) {
      part.hidden = !part.querySelector(".entry:not([hidden])");
      part.querySelector(".total").hidden = !every;
    }
    for (const part of all("section.experiment")) part.hidden = !every && !open.has(part.id);
    by("everything").hidden = entries.length > 0 && !found;
    form.querySelector("output").textContent =
      found ? `${found} of ${counted(entries.length)}` : "No entry has all of this: choose less";
    nameFold();
    return new URLSearchParams(asked);
  }
  form.hidden = !entries.length;
  form.onchange = () => { location.hash = filter().toString() || "all"; };
  form.onsubmit = (/** @type {Event} */ event) => event.preventDefault();
  fold.onclick = () => {
    const open = fold.textContent.startsWith("Open");
    for (const entry of shown()) entry.firstElementChild.open = open;
  };
  for (const entry of entries) entry.firstElementChild.addEventListener("toggle", nameFold);

  // ---- the address: filters, or a link to an entry or an experiment, which opens it
  function go() {
    const hash = location.hash.slice(1), wanted = new URLSearchParams(hash.includes("=") ? hash : "");
    const to = hash && by(decodeURIComponent(hash)), inside = to && to.querySelector("details");
    if (inside) {
      if (to.closest("[hidden]")) { form.reset(); filter(); to.scrollIntoView(); }
      inside.open = true;
    } else if (!to) {
      for (const select of all("select", form)) select.value = wanted.get(select.name) || "";
      filter();
    }
  }
  addEventListener("hashchange", go);
  filter();
  go();

  for (const button of all(".copy")) {
    button.hidden = !navigator.clipboard;
    button.onclick = async () => {
      await navigator.clipboard.writeText(button.closest("details").querySelector("pre").textContent);
      button.textContent = "Copied";
    };
  }

  function hints() {  // tables that do not fit say so
    for (const box of all(".wide")) box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth;
  }
  addEventListener("resize", hints);
  for (const part of all("details")) part.addEventListener("toggle", hints);
  hints();
})();
