/* The explorer's own controls. What they say goes to the page by two text fields of marimo's, out of sight. Where marimo
   cleans HTML, as in the sidebar, it keeps no other elements than those whose names begin with marimo-.

   carrier  holds such a field: values, of all sliders by name, or message, from back and the map
   slider   a native range and a field for a typed value, with a name and a value that are read aloud
   address  shows the settings in the page's address: a new step is an entry of the history, others replace it
   map      a grid of buttons, one for each step size and number of local steps; cells says what they show
   scene    the picture of scene.js, whose data-scene is JSON; its cursor is the setting round
   code     a block with one button that copies it */
(() => {
  "use strict";
  if (customElements.get("fedlsa-scene")) return; // a notebook's cell that is run again
  const carriers = {}, sliders = new Set();
  let values = {}; // by setting
  let sent = 0; // messages, which may overtake each other on their way
  let begun = null; // the name of the field that began with them
  // There is one picture in a page, and it keeps its round and its zoom if the element is taken out and put back in.
  const room = document.createElement("div");
  let scene = null, last = {}; // its newest data; sent: the round that they came with
  let wanted = null; // the round to which its cursor has still to go
  const choose = (name, value) => {
    if (value === values[name]) return;
    values[name] = value;
    for (const slider of sliders) slider.put(); // some are there twice
    carriers.values.send({ ...values, sent: ++sent });
  };

  class Carrier extends HTMLElement {
    watch = new MutationObserver(() => this.read());
    connectedCallback() {
      if (!this.shadowRoot) this.attachShadow({ mode: "open" }); // empty: nobody sees the field
      carriers[this.dataset.of] = this;
      this.watch.observe(this, { attributes: true, childList: true, subtree: true });
      this.read();
    }
    get field() {
      return this.querySelector("marimo-text");
    }
    read() {
      const name = this.field.parentElement.getAttribute("random-id"); // another one for other settings
      if (this.dataset.of !== "values" || begun === name) return;
      [values, begun] = [JSON.parse(JSON.parse(this.field.dataset.initialValue)), name];
      wanted = last.sent === values.round ? null : values.round;
      if (wanted === null) scene?.setRound(values.round);
      for (const slider of sliders) slider.put();
    }
    send(message) {
      const detail = { value: JSON.stringify(message), element: this.field };
      this.field.dispatchEvent(new CustomEvent("marimo-value-input", { bubbles: true, composed: true, detail }));
    }
  }

  const LOOK = `<style>
    :host { display: block; width: 100%; min-width: 0; }
    label { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: baseline; column-gap: 0.5rem; }
    span { flex: 1 1 auto; }
    input { font: inherit; color: inherit; accent-color: #2563eb; box-sizing: border-box; }
    input[type=text] { width: 6em; padding: 0 0.3em; text-align: right; font-size: 0.9em; line-height: 1.5;
      background: transparent; border: 1px solid color-mix(in srgb, currentColor 30%, transparent); border-radius: 4px; }
    input:invalid { border-color: #dc2626; }
    input[type=range] { display: block; width: 100%; margin: 0.3rem 0 0; height: 1.2rem; cursor: pointer; }
    @media (pointer: coarse) { input[type=range] { height: 1.9rem; margin: 0; } }
  </style>
  <label><span></span><input type="text" inputmode="decimal" autocomplete="off"></label><input type="range" step="1" min="0">`;

  class Slider extends HTMLElement {
    static observedAttributes = ["data-about"];
    constructor() {
      super();
      this.attachShadow({ mode: "open" }).innerHTML = LOOK;
      [this.typed, this.range] = this.shadowRoot.querySelectorAll("input");
      this.range.oninput = () => choose(this.about.name, this.places[this.range.value]);
      this.typed.oninput = () => this.typed.setCustomValidity("");
      this.typed.onchange = () => this.read();
      this.typed.onkeydown = (event) => {
        const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        choose(this.about.name, this.places[Math.min(Math.max(+this.range.value + step, 0), this.places.length - 1)]);
      };
    }
    connectedCallback() {
      sliders.add(this);
      this.put();
    }
    disconnectedCallback() {
      sliders.delete(this);
    }
    attributeChangedCallback() {
      this.about = JSON.parse(this.dataset.about);
      this.shadowRoot.querySelector("span").textContent = this.range.ariaLabel = this.about.label;
      this.typed.ariaLabel = `${this.about.label}, typed`;
      this.put();
    }
    put() {
      const { name, steps, unit } = this.about;
      if (!(name in values)) return; // they are still on the way
      const value = values[name] ?? 1 / values.local_steps; // Scaffnew's probability follows, until it is chosen
      // a value from elsewhere (typed, a link, a plan) gets a place of its own
      this.places = [...new Set([...steps, value])].sort((a, b) => a - b);
      this.range.max = this.places.length - 1;
      this.range.value = this.places.indexOf(value);
      const shown = Number.isInteger(value) ? value : +value.toPrecision(4); // as far as there is room
      this.range.setAttribute("aria-valuetext", `${shown} ${unit}`.trim());
      Object.assign(this.typed, { value: shown, title: value });
      this.typed.setCustomValidity("");
    }
    read() {
      const text = this.typed.value.trim();
      if (text === "" && this.about.name === "probability") return choose("probability", null);
      if (text !== "" && Number.isFinite(+text)) return choose(this.about.name, +text);
      this.typed.setCustomValidity("a number, such as 0.05");
      this.typed.reportValidity();
    }
  }

  let entry = 0; // of the page's steps, the one whose settings the address shows

  class Address extends HTMLElement {
    static observedAttributes = ["data-query", "data-entry"];
    connectedCallback() {
      this.write();
    }
    attributeChangedCallback() {
      this.waiting ??= setTimeout(() => this.write()); // both have changed by then
    }
    write() {
      clearTimeout(this.waiting);
      this.waiting = undefined;
      const { query, entry: wanted } = this.dataset;
      const url = location.pathname + (query && `?${query}`);
      const how = +wanted !== entry && url !== location.pathname + location.search ? "pushState" : "replaceState";
      entry = +wanted;
      history[how]({ fedlsa: entry }, "", url);
    }
  }

  addEventListener("popstate", (event) => {
    entry = event.state?.fedlsa ?? 0;
    carriers.message?.send({ query: location.search, entry });
  });

  const MAP = `<style>
    :host { display: block; --FedLSA: #d55e00; --SCAFFLSA: #0072b2; --Scaffnew: #009e73; }
    table { border-collapse: collapse; table-layout: fixed; width: 100%; max-width: 52rem; font-size: 0.8rem; }
    th { font-weight: normal; padding: 2px; overflow: visible; white-space: nowrap; }
    tr > th:first-child { width: 3.6rem; text-align: right; }
    td { padding: 0; height: 1.7rem; }
    td.edge { border-left: 3px solid currentColor; }
    button { display: block; width: 100%; height: 100%; min-height: 1.7rem; padding: 0; cursor: pointer; border-radius: 0;
      border: 1px solid color-mix(in srgb, currentColor 15%, transparent); background: transparent; }
    button:is(:hover, :focus-visible) { outline: 3px solid currentColor; outline-offset: -3px; }
    .here button { box-shadow: inset 0 0 0 3px white, inset 0 0 0 5px black; }
    .unstable { background: repeating-linear-gradient(45deg, #8886 0 2px, transparent 2px 8px); }
    .refused { background: radial-gradient(#888 1.5px, transparent 2px) 0 0 / 8px 8px; }
    @media (prefers-color-scheme: dark) { :host { --FedLSA: #ff8d45; --SCAFFLSA: #58b1ee; --Scaffnew: #35c99b; } }
    p span { margin-left: 1em; white-space: nowrap; }
    i { display: inline-block; width: 1.1em; height: 1.1em; margin: 0 0.3em -0.2em 0; border: 1px solid #8888; }
    output { display: block; min-height: 2.8em; }
  </style><table role="grid" aria-label="Step size η across, local steps H upwards"></table><p></p><output></output>`;
  const maps = new Set();
  let known = { cells: {}, methods: [] }; // of the newest answer

  class MethodMap extends HTMLElement {
    connectedCallback() {
      maps.add(this);
      if (!this.shadowRoot) this.build();
      this.show();
    }
    disconnectedCallback() {
      maps.delete(this);
    }
    build() {
      const root = this.attachShadow({ mode: "open" });
      root.innerHTML = MAP;
      const { columns, rows } = JSON.parse(this.dataset.about);
      const table = root.querySelector("table");
      this.places = rows.map((steps) => {
        const row = table.insertRow();
        row.append(Object.assign(document.createElement("th"), { textContent: steps, scope: "row" }));
        return columns.map((size) => {
          const button = document.createElement("button");
          Object.assign(button, { tabIndex: -1, place: `${steps} ${size}` });
          button.onclick = () => carriers.message.send({ step_size: size, local_steps: steps, at: Date.now() });
          button.onfocus = button.onmouseenter = () => (root.querySelector("output").textContent = button.ariaLabel);
          row.insertCell().append(button);
          return button;
        });
      });
      const foot = table.insertRow();
      for (const [i, text] of ["H \u2191 \u03b7 \u2192", ...columns].entries())
        foot.append(Object.assign(document.createElement("th"), { textContent: i % 3 === 1 || !i ? text : "", scope: "col" }));
      table.onkeydown = (event) => this.move(event);
    }
    move(event) {
      const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      const i = this.places.findIndex((row) => row.includes(event.target));
      if (!way || i < 0) return;
      event.preventDefault();
      const next = this.places[i + way[0]]?.[this.places[i].indexOf(event.target) + way[1]];
      if (!next) return;
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
    show() {
      const sizes = Object.values(known.cells).filter(([best]) => known.methods.includes(best)).map((cell) => cell[1]);
      const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
      for (const row of this.places)
        for (const [j, button] of row.entries()) {
          const [best = "", size = 0, said = "Not computed yet."] = known.cells[button.place] ?? [];
          const share = 100 - 65 * ((size - least) / (most - least || 1)); // the smaller the error the stronger the colour
          button.className = best;
          button.style.background = known.methods.includes(best) ? `color-mix(in srgb, var(--${best}) ${share}%, transparent)` : "";
          button.ariaLabel = said;
          const before = known.cells[row[j - 1]?.place]?.[0];
          button.parentElement.className = (best === "unstable" && known.methods.includes(before) ? "edge " : "")
            + (button.place === known.here ? "here" : "");
        }
      const all = this.places.flat();
      if (!all.some((button) => button.tabIndex === 0))
        (all.find((button) => button.place === known.here) ?? all[0]).tabIndex = 0;
      const keys = [...known.methods.map((name) => [name, `background: var(--${name})`]), ["unstable"], ["refused"]];
      const legend = keys.map(([name, style = ""]) => `<span><i class="${style ? "" : name}" style="${style}"></i>${name}</span>`);
      this.shadowRoot.querySelector("p").innerHTML = Object.keys(known.cells).length
        ? `Best: ${legend.join(" ")}. The stronger the colour, the smaller the error.` : "";
    }
  }

  class Cells extends HTMLElement {
    static observedAttributes = ["data-map"];
    connectedCallback() {
      this.attributeChangedCallback();
    }
    attributeChangedCallback() {
      known = JSON.parse(this.dataset.map ?? "null") ?? known;
      for (const map of maps) map.show();
    }
  }

  class Scene extends HTMLElement {
    static observedAttributes = ["data-scene"];
    connectedCallback() {
      this.append(room);
      this.attributeChangedCallback();
    }
    attributeChangedCallback() {
      const text = this.dataset.scene;
      if (!this.isConnected || !text) return;
      if (text !== last.text) this.show(text); // else the picture has come with another element
      this.classList.toggle("without-agents", last.plane === null);
      this.scene = scene;
    }
    show(text) {
      const data = { ...JSON.parse(text), text };
      data.sent = data.round;
      for (const m of data.plane?.methods ?? [])
        if (m.name in data.unstable) Object.assign(m, { end: null, end_reason: data.unstable[m.name] });
      const keep = data.round !== wanted; // else another setting has begun, from a link or by going back
      if (keep) delete data.round;
      else wanted = null;
      scene ??= FedLSAScene.create(room, { future: 0.75 });
      if (data.problem !== last.problem) scene.fit();
      scene.show(data, { keep: keep && data.question === last.question });
      last = data;
    }
  }

  let seen = 0;
  setInterval(() => { // a cursor that rests is where a link opens
    if (!scene) return;
    const round = Math.round(scene.round), moved = round !== Math.min(values.round, last.rounds);
    if (moved && round === seen && !scene.playing && wanted === null) choose("round", round);
    seen = round;
  }, 300);

  class Code extends HTMLElement {
    constructor() {
      super();
      const shadow = this.attachShadow({ mode: "open" }); // nobody takes its button for a part of the block
      shadow.innerHTML = "<style>button { position: absolute; top: 0.4rem; right: 0.4rem; }</style><slot></slot>"
        + "<button type=button>Copy</button>";
      const button = shadow.querySelector("button");
      button.onclick = async () => {
        await navigator.clipboard.writeText(this.querySelector("pre").textContent);
        button.textContent = "Copied";
      };
    }
  }

  // marimo's buttons that show a picture alone
  const NAMES = { "chevron-left": "Hide or show the problem", menu: "Show the problem", ellipsis: "More actions" };
  const name = () => {
    for (const [picture, said] of Object.entries(NAMES)) {
      const buttons = document.querySelectorAll(`button:not([aria-label]):has(> svg.lucide-${picture})`);
      for (const button of buttons) button.setAttribute("aria-label", said);
    }
  };
  new MutationObserver(name).observe(document.documentElement, { childList: true, subtree: true });

  customElements.define("fedlsa-scene", Scene);
  customElements.define("fedlsa-code", Code);
  customElements.define("marimo-fedlsa-carrier", Carrier);
  customElements.define("marimo-fedlsa-slider", Slider);
  customElements.define("marimo-fedlsa-address", Address);
  customElements.define("marimo-fedlsa-map", MethodMap);
  customElements.define("marimo-fedlsa-cells", Cells);
})();
