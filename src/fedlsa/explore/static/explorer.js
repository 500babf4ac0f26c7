/* The explorer's page. ABOUT (from the server) says what the settings are; `values` holds them, and so does the address.

   Every change asks the server for curves, with the settings as a query; the answer comes as lines of JSON, each of which
   adds to what is known and shown. A newer question gives the older one up. Fit, simulation, map and plans are questions
   of their own; the first line of an answer names what each of them depends on, and what no longer holds is taken away. */
"use strict";
(() => {
  const {settings: SETTINGS, problems: PROBLEMS, methods: METHODS, map: MAP} = ABOUT;
  const SETTLED = 600, RETRY = 1000, LOOK = 5000;  // ms: a slider rests; after a lost answer; between looks at the server
  const OWN = ["moves", "target", "columns", "round"];  // of one problem alone
  const PLAN_HEAD = ["", "step size", "local steps", "rounds", "observations per agent", "bytes"];
  const find = id => /** @type {any} */ (document.getElementById(id));
  const make = (tag, about = {}, ...inside) => {
    const made = Object.assign(document.createElement(tag), about);
    made.append(...inside);
    return made;
  };
  const random = () => [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, "0")).join("");
  const page = random();
  let values = read(location.search), good = {...values};  // good: the server has taken them
  let files = history.state?.files || sessionStorage.files || "";  // the set of files that were dropped
  const none = /** @type {any} */ (null);
  let known = none, keys = {}, runs = none, sites = none, take = none, fresh = true, jump = true, begun = false;
  let scene = none, shownMoves = "", number = 0, moved = none, timer = 0, asking = false;
  const open = {};  // by topic: what ends the answer that is coming
  const controls = {};  // by setting: puts its value into the page

  // ---- settings and the address
  function parse(name, text) {
    const usual = SETTINGS[name].default;
    if (typeof usual === "string") return text;
    if (typeof usual === "boolean") return text === "yes" || (text === "no" ? false : text);
    return text.trim() !== "" && Number.isFinite(+text) ? +text : text;  // else the server says what is wrong
  }
  function read(query) {
    const out = Object.fromEntries(Object.entries(SETTINGS).map(([name, s]) => [name, s.default]));
    for (const [name, text] of new URLSearchParams(query)) out[name] = name in SETTINGS ? parse(name, text) : text;
    return out;
  }
  function query(of, more = {}) {
    const out = new URLSearchParams();
    for (const [name, value] of Object.entries(of))
      if (value !== SETTINGS[name]?.default && value !== null)
        out.set(name, typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
    for (const [name, value] of Object.entries(more)) if (value !== "") out.set(name, String(value));
    return out.toString();
  }
  function remember(push = true) {  // an entry of the history, so that Back undoes it
    clearTimeout(timer);
    timer = 0;
    const text = query(values), url = location.pathname + (text && `?${text}`);
    if (url !== location.pathname + location.search) history[push ? "pushState" : "replaceState"]({files}, "", url);
  }
  function change(changes, step = false) {
    if (step && timer) remember();
    const names = Object.keys(changes);
    moved = names.length === 1 ? {moved: names[0], from: values[names[0]]} : null;
    Object.assign(values, changes);
    put();
    clearTimeout(timer);
    if (step) { jump = true; remember(); } else timer = setTimeout(remember, SETTLED);
    ask();
  }
  function choose(problem) {  // what the person has set stays set
    const before = PROBLEMS[values.problem].start, kept = {};
    for (const [name, {default: usual}] of Object.entries(SETTINGS))
      if (name !== "problem" && !OWN.includes(name) && values[name] !== (before[name] ?? usual)) kept[name] = values[name];
    change({...start(problem), ...kept}, true);
  }
  const start = problem => ({...read(""), problem, ...PROBLEMS[problem].start});
  addEventListener("popstate", event => {
    clearTimeout(timer);
    [timer, values, jump, moved] = [0, read(location.search), true, null];
    files = event.state?.files ?? files;
    put();
    ask();
  });

  // ---- controls
  function slider(name, {label, offers, unit}) {
    const range = make("input", {type: "range", min: 0, step: 1, ariaLabel: label});
    const typed = make("input", {type: "text", inputMode: "decimal", autocomplete: "off", ariaLabel: `${label}, typed`});
    let places = offers;
    range.oninput = () => change({[name]: places[range.value]});
    typed.onchange = () => {
      const text = typed.value.trim();
      change({[name]: text === "" && SETTINGS[name].default === null ? null : parse(name, text)});
    };
    controls[name] = () => {
      const value = values[name] ?? 1 / values.local_steps;  // Scaffnew's probability follows, until it is chosen
      if (!Number.isFinite(value)) return;
      places = [...new Set([...offers, value])].sort((a, b) => a - b);  // a value from elsewhere gets a place of its own
      Object.assign(range, {max: places.length - 1, value: places.indexOf(value)});
      const shown = Number.isInteger(value) ? value : +value.toPrecision(4);
      range.setAttribute("aria-valuetext", `${shown} ${unit}`.trim());
      Object.assign(typed, {value: shown, title: value});
    };
    return make("div", {className: "control slider"}, make("label", {}, label, typed), range);
  }
  function options(name, {label, offers}) {
    const inputs = Object.entries(offers).map(([value, text]) => {
      const input = make("input", {type: "radio", name, value});
      input.onchange = () => change({[name]: value}, true);
      return make("label", {}, make("span", {}, input, ` ${text}`));
    });
    const group = make("fieldset", {className: "control options"}, make("legend", {textContent: label}), ...inputs);
    controls[name] = () => group.querySelectorAll("input").forEach(one => { one.checked = one.value === values[name]; });
    return group;
  }
  function field(name, {label, element, offers}) {
    const kinds = {select: ["select", {}], target: ["select", {}], text: ["input", {type: "text"}],
      number: ["input", {type: "number", min: offers[0], max: offers[1]}], checkbox: ["input", {type: "checkbox"}]};
    const [tag, about] = kinds[element], input = make(tag, {...about, ariaLabel: label});
    if (element === "select") for (const [value, text] of Object.entries(offers)) input.append(new Option(text, value));
    input.onchange = () => name === "problem" ? choose(input.value)
      : change({[name]: element === "checkbox" ? input.checked : parse(name, input.value)}, true);
    controls[name] = () => {
      if (element === "target") input.replaceChildren(...(sites?.targets ?? []).map(t => new Option(t, t)));
      if (element === "checkbox") input.checked = values[name]; else input.value = values[name];
    };
    return make("div", {className: "control"}, make("label", {}, label, input));
  }
  function columns(name, {label}) {
    const group = make("fieldset", {className: "control options"});
    const join = terms => terms.map(t => /[",\r\n]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t).join(",");
    controls[name] = () => {
      const boxes = Object.entries(sites?.columns ?? {}).map(([term, text]) => {
        const box = make("input", {type: "checkbox", value: term, checked: sites.chosen.includes(term)});
        box.onchange = () => change({[name]: join([...group.querySelectorAll("input:checked")].map(b => b.value))}, true);
        return make("label", {}, make("span", {}, box, ` ${text}`));
      });
      if (!group.contains(document.activeElement) || boxes.length !== group.children.length - 1)
        group.replaceChildren(make("legend", {textContent: label}), ...boxes);
      const left = (sites?.texts ?? []).filter(t => !sites.chosen.includes(`C(${t})`));
      if (left.length) group.querySelector("legend").append(make("small", {textContent: `Text, left out: ${left.join(", ")}`}));
    };
    return group;
  }
  const KINDS = {slider, radio: options, columns};
  const control = name => (KINDS[SETTINGS[name].element] ?? field)(name, SETTINGS[name]);
  function put() {
    const {settings, says} = PROBLEMS[values.problem] ?? PROBLEMS.ring, ofFiles = values.problem === "files";
    const wanted = ofFiles ? ["task", ...values.task === "value" ? ["state", "next_state", "discount"]
      : sites?.targets.length ? ["target", "columns", "missing"] : ["missing"], "weight"] : settings;
    const room = find("of-problem");
    if (room.dataset.shown !== String(wanted)) {
      room.replaceChildren(...wanted.map(control));
      room.dataset.shown = String(wanted);
    }
    find("files").hidden = !ofFiles;
    find("says").textContent = says;
    for (const [name, show] of Object.entries(controls)) if (name in values) show();
  }

  // ---- answers
  async function stream(topic, hear, more = {}, of = values) {
    open[topic]?.abort();
    const end = open[topic] = new AbortController(), {signal} = end;
    let whole = false;
    try {
      const answer = await fetch(`/${topic}?${query(of, {page, n: ++number, files, ...more})}`, {signal});
      reached(true);
      if (!answer.ok) return refuse({"": await answer.text()});
      const reader = /** @type {ReadableStream} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "";;) {
        const {value, done} = await reader.read();
        if (done || signal.aborted) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines.map(text => JSON.parse(text))) if (!signal.aborted) line.end ? whole = true : hear(line);
      }
    } catch (error) {
      if (!signal.aborted && !(error instanceof TypeError)) throw error;
    } finally {
      if (open[topic] === end) delete open[topic];
      if (!whole && !signal.aborted) lost(topic);
    }
    return whole;
  }
  function lost(topic) {  // the answer broke off, or nobody answers
    if (topic === "curves") setTimeout(() => { if (!open.curves) ask(); }, RETRY);
    else if (topic === "simulate") simulated("The simulation broke off; nothing is kept of it.");
    else if (topic !== "fit") find(topic === "map" ? "map-progress" : "busy").textContent = "The answer broke off: ask again.";
    fetch("/explorer.css", {method: "HEAD"}).then(() => reached(true), () => reached(false));
  }
  function reached(there) {
    document.body.classList.toggle("gone", !there);
    const text = there ? "" : "The program behind this page does not answer: it has ended, or the connection is lost. The "
      + "grey curves are the last that were computed. Move on: what you set is kept, and asked for when it is back.";
    if (find("gone").textContent !== text) find("gone").textContent = text;
  }
  setInterval(() => {
    if (!document.hidden && !document.body.classList.contains("gone"))
      fetch("/explorer.css", {method: "HEAD"}).catch(() => { reached(false); lost("curves"); });
  }, LOOK);

  function refuse(lines) {
    const text = Object.values(lines).filter(Boolean).join("\n");
    if (find("refused").textContent !== text) find("refused").textContent = text;
  }
  function ask(substitute = {}, again = false) {
    if (asking) return;  // the newest values go with the next turn, together
    asking = true;
    queueMicrotask(() => {
      asking = false;
      fresh = true;
      const of = /** @type {any} */ ({...values, ...substitute});
      stream("curves", line => {
        if (line.settings) return understood(line, of, again);
        if (line.known) {
          known = fresh ? {...line.known} : {...known, ...line.known};
          if ("plane" in line) known.plane = line.plane;
          [fresh, shownMoves] = [false, of.moves];
          draw();
        }
        if (line.take) { take = line.take; showTake(); }
      }, moved ?? {}, of);
    });
  }
  function understood(line, of, again) {
    const bad = Object.keys(line.refused);
    if (bad.length) {  // what cannot be leaves what was there; the complaint stays until it is mended
      refuse(line.refused);
      for (const name of bad) if (!(name in SETTINGS)) delete values[name];
      const known = bad.filter(name => name in SETTINGS);
      const instead = Object.fromEntries(known.map(name => [name, jump ? SETTINGS[name].default : good[name]]));
      if (jump) { Object.assign(values, instead); put(); }  // of a link nothing is kept that cannot be
      return ask(instead, true);
    }
    if (!again) refuse({});
    good = {...of};
    sites = line.sites ?? null;
    if (sites) {
      Object.assign(values, {target: line.settings.target, columns: line.settings.columns});
      const many = sites.names.length === 1 ? "1 site" : `${sites.names.length} sites`;
      find("file-names").textContent = sites.names.length ? `${many}: ${sites.names.join(", ")}` : "No files yet.";
      put();
    }
    const old = keys;
    keys = line.keys;
    const gone = topic => old[topic] !== keys[topic];
    if (gone("simulate")) { open.simulate?.abort(); runs = null; simulated(""); }
    if (gone("map")) { open.map?.abort(); cells.clear(); find("map-progress").textContent = ""; }
    if (gone("plans")) { open.plans?.abort(); clearPlans(); }
    if (gone("fit")) {
      find("fit").hidden = true;
      if (sites?.names.length) stream("fit", showFit);
    }
    showMap();
  }

  // ---- the pictures and the words
  function draw() {
    const data = {...known};
    find("scene").classList.toggle("without-agents", data.plane === null);
    for (const m of data.plane?.methods ?? []) if (m.name in data.unstable) Object.assign(m, {end: null, end_reason: data.unstable[m.name]});
    if (data.error && runs)
      data.error = {...data.error, methods: data.error.methods.map(m => ({...m, ...runs.of[m.name]}))};
    const dotted = runs ? [`Dotted: the mean of ${runs.seeds} simulated seeds; tinted: four fifths of them.`] : [];
    say(find("words"), [...data.words ?? [], ...dotted].map(line => ["li", line]));
    find("small").textContent = [data.limits, data.start].filter(Boolean).join(" · ");
    if (data.error === null) { take = none; find("take").replaceChildren(); }  // the last curves were of another question
    if (!data.error && !data.plane) { find("scene").hidden ||= data.error === null; return; }
    find("scene").hidden = false;
    if (!scene) {
      find("scene").replaceChildren();
      scene = find("scene").scene = FedLSAScene.create(find("scene"), {future: 0.75, onDrag: pull});
    }
    if (jump) data.round = values.round; else delete data.round;
    if (data.error && !begun) data.error = {...data.error, bands_of: data.error.methods[0].name};  // FedLSA, once it is there
    const keep = begun && !jump && keys.curves === scene.key;
    if (data.problem !== scene.problem) scene.fit();
    Object.assign(scene, {key: keys.curves, problem: data.problem, data});
    scene.show(data, {keep});
    if (known.error) jump = false;
    begun ||= !data.waiting.length;
  }
  function say(list, lines) {  // **name** is bold
    const text = JSON.stringify(lines);
    if (list.dataset.said === text) return;
    list.dataset.said = text;
    list.replaceChildren(...lines.map(([tag, line]) =>
      make(tag, {}, ...line.split("**").map((part, i) => i % 2 ? make("b", {textContent: part}) : part))));
  }
  function split(moves) {
    return new Map(moves.split(";").filter(Boolean).map(part => {
      const [agent, numbers] = part.split(":");
      return [+agent - 1, numbers.split(",").map(Number)];
    }));
  }
  function pull(c, to) {  // an agent's own solution, to a place of the picture: exact in all coordinates
    const {axes, agents} = known.plane, own = agents[c].own, all = split(values.moves), base = split(shownMoves).get(c);
    const by = axes[0].map((_, j) => (base?.[j] ?? 0) + (to[0] - own[0]) * axes[0][j] + (to[1] - own[1]) * (axes[1]?.[j] ?? 0));
    all.set(c, by.map(v => +v.toPrecision(4)));
    const text = [...all].sort((a, b) => a[0] - b[0]).map(([agent, numbers]) => `${agent + 1}:${numbers.join(",")}`).join(";");
    change({moves: text});
  }
  let rested = -1;
  setInterval(() => {  // a cursor that rests is where a link opens
    if (!scene || jump) return;
    const round = Math.round(scene.round);
    if (round !== Math.min(values.round, known.rounds) && round === rested && !scene.playing) {
      values.round = round;
      if (!timer) remember(false);
    }
    rested = round;
  }, 300);

  // ---- simulated seeds
  function simulated(text, share = none) {
    const bar = share === null ? [] : [make("progress", {value: share, max: 1}), ` ${Math.round(100 * share)}%`];
    find("simulated").replaceChildren(text, ...bar);
    find("stop").hidden = share === null;
  }
  find("simulate").onclick = () => {
    runs = null;
    simulated("simulating ", 0);
    stream("simulate", line => {
      if (line.share !== undefined) simulated("simulating ", line.share);
      if (line.trouble) simulated(line.trouble);
      if (line.runs) { runs = {of: line.runs, seeds: line.seeds}; simulated(""); draw(); showTake(); }
    });
  };
  find("stop").onclick = () => { open.simulate?.abort(); simulated("Stopped; nothing is kept of it."); };

  // ---- code, files, tables
  function code(text) {
    const copy = make("button", {type: "button", textContent: "Copy"});
    copy.onclick = async () => { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; };
    return make("div", {className: "code"}, make("pre", {textContent: text, tabIndex: 0}), copy);
  }
  function showTake() {
    if (!take) return;
    const link = name => make("a", {textContent: name, download: name, href: `/take?${query(values, {page, n: number, files, name,
      simulated: runs ? "1" : ""})}`});
    const of = (kind, name, endings) => [make("h3", {textContent: kind}), code(take[runs && name === "error" ? "seeds" : name]),
      code(take[`${runs && name === "error" ? "seeds" : name}_command`]),
      make("div", {className: "links"}, ...endings.map(ending => link(name + ending)))];
    const pictures = [".png", ".svg", ".pdf"];
    find("take").replaceChildren(...of("The error", "error", [...pictures, ".csv", ".nc"]), ...of("The agents", "agents", pictures));
  }
  function table(head, rows) {
    const row = (tag, cells) => make("tr", {}, ...cells.map(cell => make(tag, {textContent: cell})));
    return make("table", {className: "numbers"}, row("th", head), ...rows.map(cells => row("td", cells)));
  }
  function showFit(line) {
    if (!line.fit) return;
    find("fit").hidden = false;
    find("fit").querySelector("pre").textContent = line.fit;
    find("fit").querySelector(".codes").replaceChildren(code(line.code));
  }
  async function upload(chosen) {
    const set = random();
    for (const [i, file] of [...chosen].entries()) {
      find("file-names").textContent = `Reading ${file.name} (${i + 1} of ${chosen.length}) …`;
      const most = ABOUT.upload_bytes / 2 ** 20, size = Math.ceil(file.size / 2 ** 20);
      let trouble = size > most ? `${file.name} must have at most ${most} MB; name it on the command line instead; got ${size} MB` : "";
      if (!trouble) {
        const sent = await fetch(`/upload?${new URLSearchParams({files: set, name: file.name})}`, {method: "POST", body: file}).catch(() => null);
        trouble = !sent ? "The program behind this page does not answer." : sent.ok ? (await sent.json()).trouble : await sent.text();
      }
      if (trouble) { refuse({"": trouble}); find("file-names").textContent = ""; return; }
    }
    files = sessionStorage.files = set;
    change({problem: "files", target: values.target, columns: ""}, true);
  }
  const drop = /** @type {any} */ (document.querySelector(".drop")), chooser = drop.querySelector("input");
  chooser.onchange = () => chooser.files.length && upload(chooser.files);
  for (const kind of ["dragover", "dragleave", "drop"])
    drop.addEventListener(kind, event => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) upload(event.dataTransfer.files);
    });

  // ---- plans
  let plans = {}, planned = [];
  function clearPlans() {
    [plans, planned] = [{}, []];
    for (const id of ["plans", "chart", "legend", "busy"]) find(id).replaceChildren();
    find("marks").hidden = true;
  }
  find("find").onclick = () => {
    clearPlans();
    let head = "";
    const rows = {};
    stream("plans", line => {
      head = line.head ?? head;
      if (line.busy !== undefined) find("busy").textContent = line.busy;
      if (line.method) {
        rows[line.method] = line.cells ?? [line.why];
        showPlan(head, rows, line);
      }
      if (line.chart) {
        FedLSAChart.draw(find("chart"), line.chart, {label: `${line.chart.y.label} against ${line.chart.x.label}`});
        FedLSAChart.legend(find("legend"), [line.chart]);
      }
      if (line.marks) {
        find("marks").hidden = false;
        find("marks").querySelector("div").replaceChildren(table([head, ...PLAN_HEAD.slice(1)], line.marks));
      }
    });
  };
  function showPlan(head, rows, {method, settings}) {
    const room = find("plans");
    if (!room.children.length) room.append(make("div", {className: "line"}), make("div"));  // buttons stay where they are
    const shown = [...new Set([...METHODS, ...Object.keys(rows)])].filter(name => rows[name]).map(name => [name, ...rows[name]]);
    room.lastChild.replaceChildren(table([head, ...PLAN_HEAD.slice(1)], shown));
    for (const row of room.querySelectorAll("tr")) if (row.cells.length === 2) Object.assign(row.cells[1], {colSpan: 5, className: "why"});
    if (!settings) return;
    plans[method] = settings;
    const use = make("button", {type: "button", textContent: `Use ${method}'s plan`});
    use.onclick = () => change(plans[method], true);
    room.firstChild.append(use);
  }

  // ---- the map: a grid of buttons, one for each step size and number of local steps
  const cells = new Map();
  const places = MAP.rows.map(steps => {
    const row = find("map").insertRow();
    row.append(make("th", {textContent: steps, scope: "row"}));
    return MAP.columns.map(size => {
      const button = make("button", {type: "button", tabIndex: -1, size, steps, place: `${steps} ${size}`});
      button.onclick = () => change({step_size: size, local_steps: steps, sampling: "iid", probability: null}, true);
      button.onfocus = button.onmouseenter = () => { find("cell").textContent = button.ariaLabel; };
      row.insertCell().append(button);
      return button;
    });
  });
  find("map").append(make("tr", {}, ...["H ↑ η →", ...MAP.columns].map((text, i) =>
    make("th", {textContent: i % 3 === 1 || !i ? text : "", scope: "col"}))));
  find("map").onkeydown = event => {
    const way = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    const i = places.findIndex(row => row.includes(event.target));
    if (!way || i < 0) return;
    event.preventDefault();
    const next = places[i + way[0]]?.[places[i].indexOf(event.target) + way[1]];
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
  const nearest = (list, v) => list.reduce((a, b) => Math.abs(Math.log(b / v)) < Math.abs(Math.log(a / v)) ? b : a);
  function showMap() {
    find("map").hidden = !cells.size;
    const here = `${nearest(MAP.rows, values.local_steps)} ${nearest(MAP.columns, values.step_size)}`;
    const sizes = [...cells.values()].filter(([best]) => METHODS.includes(best)).map(cell => cell[1]);
    const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
    for (const row of places) for (const [j, button] of row.entries()) {
      const [best = "", size = 0, text = "Not computed yet."] = cells.get(button.place) ?? [];
      const share = 100 - 65 * ((size - least) / (most - least || 1));  // the smaller the error the stronger the colour
      Object.assign(button, {className: best, ariaLabel: text});
      button.style.background = METHODS.includes(best) ? `color-mix(in srgb, var(--${best}) ${share}%, transparent)` : "";
      const edge = best === "unstable" && METHODS.includes(cells.get(row[j - 1]?.place)?.[0]);
      button.parentElement.className = `${edge ? "edge " : ""}${button.place === here ? "here" : ""}`;
    }
    const all = places.flat();
    if (!all.some(button => button.tabIndex === 0)) (all.find(button => button.place === here) ?? all[0]).tabIndex = 0;
    const key = (name, about) => make("span", {}, Object.assign(make("i", about)), name);
    find("map-keys").replaceChildren(...cells.size ? ["Best:", ...METHODS.map(name => {
      const shown = key(name, {});
      shown.firstChild.style.background = `var(--${name})`;
      return shown;
    }), ...["unstable", "refused"].map(name => key(name, {className: name})),
    make("br"), "The stronger the colour, the smaller the error."] : []);
  }
  find("draw-map").onclick = () => stream("map", line => {
    if (line.progress) find("map-progress").textContent = line.progress;
    if (line.row) {
      line.row.forEach((cell, j) => cells.set(`${line.steps} ${MAP.columns[j]}`, cell));
      showMap();
    }
  });

  // ---- begin
  for (const name of ABOUT.others) document.documentElement.style.setProperty(`--${name}`, "var(--other)");
  for (const room of /** @type {any} */ (document.querySelectorAll("[data-controls]")))
    room.prepend(...room.dataset.controls.split(" ").map(control));
  const wide = matchMedia("(min-width: 901px)");
  (wide.onchange = () => { find("problem").open = wide.matches; })();
  find("reset").onclick = () => change(start(values.problem), true);
  put();
  ask();
})();
