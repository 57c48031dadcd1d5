"use strict";
// The page: a state in the link, controls that change it, and plots of what is computed from it.
const options = JSON.parse(document.getElementById("options").textContent);
const at = id => document.getElementById(id);
const colours = ["#4477aa", "#ee8866", "#228833", "#aa3377"];
const START = {
  scores: [2.4, -0.6, 1.3, 0.2, 1.1, -1.7, 0.8, -0.3, 1.9, -1.1, 0.5, -2.0], k: 4, temperature: 0.5,
  methods: options.methods.includes("softsort") ? ["sigmoid", "sparse", "softsort"] : options.methods.slice(),
  designs: options.designs.includes("conditional_poisson") ? ["conditional_poisson", "plackett_luce"] : ["random_systematic"],
  loss: "runner_up", draws: 1000, seed: 0,
};
let state = structuredClone(START);
let asked = 0, pending = null, shownOperators = 0;

// ---- the link ----------------------------------------------------------------------------------------------
function parameters(of) {
  const list = {scores: of.scores.map(x => +x.toFixed(2)).join(","), k: of.k, temperature: of.temperature,
    methods: of.methods.join(","), designs: of.designs.join(","), loss: of.loss, draws: of.draws, seed: of.seed};
  return new URLSearchParams(list);
}

function readLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  const names = (name, known) => {
    const list = given.get(name).split(",").filter(Boolean);
    for (const one of list) if (!known.includes(one)) throw new Error(`${name} must be out of ${known.join(", ")}; got '${one}'`);
    if (list.length > options.maxSides) throw new Error(`${name} must be at most ${options.maxSides} names; got ${list.length}`);
    return list;
  };
  const number = (name, low, high, text = given.get(name)) => {
    const value = Number(text);
    if (!text.trim() || !(value >= low && value <= high)) throw new Error(`${name} must be a number from ${low} to ${high}; got '${text}'`);
    return value;
  };
  const read = structuredClone(START);
  for (const name of given.keys()) if (!(name in START)) throw new Error(`'${name}' is not a setting of this page`);
  if (given.has("scores")) {
    const parts = given.get("scores").split(",");
    if (parts.length < 2 || parts.length > options.maxN) throw new Error(`scores must be 2 to ${options.maxN} numbers; got ${parts.length}`);
    read.scores = parts.map(part => number("scores", -100, 100, part));
    read.k = Math.min(read.k, parts.length);
  }
  if (given.has("k")) read.k = number("k", 0, read.scores.length);
  if (given.has("temperature")) read.temperature = number("temperature", 0.001, 100);
  if (given.has("methods")) read.methods = names("methods", options.methods);
  if (!read.methods.length) throw new Error("methods must name an operator");
  if (given.has("designs")) read.designs = names("designs", options.designs);
  if (given.has("loss")) {
    read.loss = given.get("loss");
    if (!(read.loss in options.losses)) throw new Error(`loss must be one of ${Object.keys(options.losses).join(", ")}; got '${read.loss}'`);
  }
  if (given.has("draws")) read.draws = Math.round(number("draws", 1, options.maxDraws));
  if (given.has("seed")) read.seed = Math.round(number("seed", 0, 2147483647));
  return read;
}

function say(text) {
  at("message").textContent = text;
  at("message").hidden = !text;
}

// ---- scores ------------------------------------------------------------------------------------------------
const HEIGHT = 200, TOP = 4;
function drawScores(hard) {
  const svg = at("scores"), n = state.scores.length, space = "http://www.w3.org/2000/svg";
  svg.setAttribute("viewBox", `0 0 ${n * 20} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  while (svg.childElementCount > n + 1) svg.lastElementChild.remove();
  if (!svg.querySelector("line")) {
    const axis = document.createElementNS(space, "line");
    axis.setAttribute("x1", 0); axis.setAttribute("vector-effect", "non-scaling-stroke");
    svg.append(axis);
  }
  const axis = svg.querySelector("line");
  axis.setAttribute("x2", n * 20); axis.setAttribute("y1", HEIGHT / 2); axis.setAttribute("y2", HEIGHT / 2);
  for (let i = 0; i < n; i++) {
    let group = svg.children[i + 1];
    if (!group) {
      group = document.createElementNS(space, "g");
      group.setAttribute("role", "slider"); group.setAttribute("tabindex", "0");
      group.setAttribute("aria-valuemin", -TOP); group.setAttribute("aria-valuemax", TOP);
      group.setAttribute("aria-orientation", "vertical");
      for (const name of ["handle", "bar"]) {
        const rectangle = document.createElementNS(space, "rect");
        rectangle.setAttribute("class", name);
        if (name === "bar") rectangle.setAttribute("pointer-events", "none");
        group.append(rectangle);
      }
      group.dataset.place = i;
      svg.append(group);
    }
    const [handle, bar] = group.children, x = state.scores[i], shown = Math.max(-TOP, Math.min(TOP, x));
    handle.setAttribute("x", i * 20 + 1); handle.setAttribute("width", 18); handle.setAttribute("y", 0); handle.setAttribute("height", HEIGHT);
    const y = HEIGHT / 2 * (1 - shown / TOP);
    bar.setAttribute("x", i * 20 + 3); bar.setAttribute("width", 14);
    bar.setAttribute("y", Math.min(y, HEIGHT / 2)); bar.setAttribute("height", Math.max(1, Math.abs(y - HEIGHT / 2)));
    bar.setAttribute("class", hard && hard[i] ? "bar kept" : "bar");
    group.setAttribute("aria-label", `score ${i + 1}`);
    group.setAttribute("aria-valuenow", x.toFixed(2));
  }
}

function setScore(place, value) {
  state.scores[place] = +Math.max(-TOP, Math.min(TOP, value)).toFixed(2);
  drawScores();
  update();
}

let dragged = null;
function drag(event) {
  if (dragged === null) return;
  const box = at("scores").getBoundingClientRect();
  setScore(dragged, TOP * (1 - 2 * (event.clientY - box.top) / box.height));
}
at("scores").addEventListener("pointerdown", event => {
  const group = event.target.closest("g");
  if (!group) return;
  dragged = +group.dataset.place;
  at("scores").setPointerCapture(event.pointerId);
  group.focus();
  drag(event);
  event.preventDefault();
});
at("scores").addEventListener("pointermove", drag);
for (const end of ["pointerup", "pointercancel"]) at("scores").addEventListener(end, () => { dragged = null; });
at("scores").addEventListener("keydown", event => {
  const group = event.target.closest("g");
  const steps = {ArrowUp: 0.1, ArrowRight: 0.1, ArrowDown: -0.1, ArrowLeft: -0.1, PageUp: 1, PageDown: -1};
  if (!group) return;
  const place = +group.dataset.place;
  if (event.key in steps) setScore(place, state.scores[place] + steps[event.key]);
  else if (event.key === "Home") setScore(place, -TOP);
  else if (event.key === "End") setScore(place, TOP);
  else return;
  event.preventDefault();
});

// ---- controls ----------------------------------------------------------------------------------------------
function fillControls() {
  at("k").max = state.scores.length;
  at("k").value = at("k-number").value = state.k;
  at("temperature").value = Math.log10(state.temperature);
  at("temperature").setAttribute("aria-valuetext", String(state.temperature));
  at("temperature-number").value = state.temperature;
  at("n").value = state.scores.length; at("n").max = options.maxN;
  at("draws").value = state.draws; at("draws").max = options.maxDraws;
  at("loss").value = state.loss;
  for (const kind of ["methods", "designs"]) for (const box of at(kind).querySelectorAll("input")) {
    box.checked = state[kind].includes(box.value);
    box.disabled = !box.checked && state[kind].length >= options.maxSides;
  }
}

function change(make) {
  return event => {
    make(event.target);
    fillControls();
    update();
  };
}
const within = (value, low, high, other) => (Number.isFinite(value) ? Math.max(low, Math.min(high, value)) : other);
const setK = target => { state.k = +within(target.valueAsNumber, 0, state.scores.length, state.k).toFixed(3); };
at("k").addEventListener("input", change(setK));
at("k-number").addEventListener("change", change(setK));
at("temperature").addEventListener("input", change(target => { state.temperature = +(10 ** target.valueAsNumber).toPrecision(3); }));
at("temperature-number").addEventListener("change", change(target => {
  state.temperature = within(target.valueAsNumber, 0.001, 100, state.temperature);
}));
at("n").addEventListener("change", change(target => {
  const n = Math.round(within(target.valueAsNumber, 2, options.maxN, state.scores.length));
  while (state.scores.length < n) state.scores.push(normal());
  state.scores.length = n;
  state.k = Math.min(state.k, n);
}));
at("draws").addEventListener("change", change(target => { state.draws = Math.round(within(target.valueAsNumber, 1, options.maxDraws, state.draws)); }));
at("loss").addEventListener("change", change(target => { state.loss = target.value; }));
at("shuffle").addEventListener("click", change(() => { state.scores = state.scores.map(normal); }));
at("copy").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(location.href); at("copy").textContent = "Copied"; }
  catch { at("copy").textContent = "Copy it from the address bar"; }
});
at("controls").addEventListener("submit", event => event.preventDefault());

function normal() {
  return +(Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random())).toFixed(2);
}

function makeChoices() {
  for (const [name, words] of Object.entries(options.losses)) at("loss").add(new Option(words, name));
  for (const kind of ["methods", "designs"]) for (const name of options[kind]) {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox"; box.value = name;
    box.addEventListener("change", change(target => {
      const rest = state[kind].filter(one => one !== name);
      state[kind] = target.checked ? [...rest, name] : (rest.length || kind === "designs" ? rest : [name]);
    }));
    label.append(box, " " + name.replaceAll("_", " "));
    at(kind).append(label);
  }
}

// ---- plots -------------------------------------------------------------------------------------------------
function layout(extra) {
  const ink = getComputedStyle(document.body).color, grid = "rgba(128,128,128,0.3)";
  const {xaxis, yaxis, ...rest} = extra;
  const axis = {gridcolor: grid, zerolinecolor: grid, automargin: true, fixedrange: true};
  return {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: ink}, barmode: "group",
    margin: {l: 8, r: 8, t: 8, b: 32}, legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0}, showlegend: true,
    xaxis: {...axis, ...xaxis}, yaxis: {...axis, ...yaxis}, ...rest};
}
const quiet = {responsive: true, displayModeBar: false, displaylogo: false};
const places = list => list.map((_, i) => i + 1);

function bars(sides, field) {
  return sides.map((side, i) => ({type: "bar", name: side.name, x: places(side[field]), y: side[field],
    marker: {color: colours[i % 4]}, hovertemplate: "%{x}: %{y:.3f}<extra>" + side.name + "</extra>"}));
}

function show(found) {
  drawScores(found.hard);
  const able = found.operators.filter(side => !side.error), drawn = found.designs.filter(side => !side.error);
  const errors = [...found.operators, ...found.designs].filter(side => side.error).map(side => side.error);
  say(errors.join(" "));
  Plotly.react("weights", bars(able, "weights"), layout({xaxis: {dtick: state.scores.length > 24 ? 8 : 1}}), quiet);
  at("sums").textContent = able.map(side => `${side.name}: sum ${side.sum.toFixed(3)}`).join(", ");
  Plotly.react("gradient", bars(able, "gradient"), layout({xaxis: {dtick: state.scores.length > 24 ? 8 : 1}}), quiet);
  while (at("jacobian").childElementCount > able.length) { Plotly.purge(at("jacobian").lastChild); at("jacobian").lastChild.remove(); }
  while (at("jacobian").childElementCount < able.length) at("jacobian").append(document.createElement("div"));
  able.forEach((side, i) => {
    const top = Math.max(1e-9, ...side.jacobian.flat().map(Math.abs));
    Plotly.react(at("jacobian").children[i], [{type: "heatmap", z: side.jacobian, x: places(side.weights), y: places(side.weights),
      zmin: -top, zmax: top, colorscale: [[0, "#bb3322"], [0.5, "#f4f4f4"], [1, "#2255aa"]], colorbar: {thickness: 10, len: 0.9},
      hovertemplate: "∂ weight %{y} / ∂ score %{x}: %{z:.3f}<extra></extra>"}],
      layout({title: {text: side.name.replaceAll("_", " "), font: {size: 14}}, margin: {l: 8, r: 8, t: 32, b: 24}, yaxis: {autorange: "reversed"}, showlegend: false}), quiet);
  });
  if (able.length !== shownOperators) [...at("jacobian").children].forEach(plot => Plotly.Plots.resize(plot));
  shownOperators = able.length;
  const traces = drawn.map((side, i) => ({type: "scatter", mode: "markers", name: side.name, x: places(side.frequency).map(x => x + (i - (drawn.length - 1) / 2) * 0.15),
    y: side.frequency, marker: {color: colours[i % 4], size: 9},
    error_y: {type: "data", array: side.probs.map(p => 2 * Math.sqrt(p * (1 - p) / state.draws)), color: colours[i % 4], thickness: 1},
    hovertemplate: "%{y:.3f}<extra>" + side.name + "</extra>"}));
  if (drawn.length) traces.unshift({type: "bar", name: "π", x: places(drawn[0].probs), y: drawn[0].probs, marker: {color: "rgba(128,128,128,0.4)"}});
  Plotly.react("inclusion", traces, layout({yaxis: {range: [0, 1.05]}}), quiet);
  const off = drawn.filter(side => !side.exact).map(side => side.name);
  at("samples-note").textContent = drawn.length
    ? `How often each entry was drawn in ${state.draws} draws, with two standard errors, against π = sigmoid_topk.`
      + (off.length ? ` The inclusion probabilities of ${off.join(", ")} are only approximately π.` : "")
    : "Choose a design to draw samples.";
  at("samples").textContent = drawn.map(side => side.name + "\n" + side.samples.map(x => x.map(one => (one ? "█" : "·")).join("")).join("\n")).join("\n\n");
  document.body.dataset.drawn = String(+(document.body.dataset.drawn || 0) + 1);
}

// ---- from state to plots -----------------------------------------------------------------------------------
async function compute() {
  const turn = ++asked;
  if (options.local) return show(localCompute(state));
  try {
    const answer = await fetch("compute?" + parameters(state)), found = await answer.json();
    if (turn !== asked) return;
    if (answer.ok) show(found); else say(found.error);
  } catch (error) {
    if (turn === asked) say(`The server does not answer (${error.message}). Is khot explore still running?`);
  }
}

function update() {
  history.replaceState(null, "", "#" + parameters(state));
  clearTimeout(pending);
  pending = setTimeout(compute, 30);
}

function start() {
  let problem = "";
  try { state = readLink(); } catch (error) { problem = `This link cannot be shown: ${error.message}.`; }
  fillControls();
  drawScores();
  if (problem) { say(problem); return; }
  compute();
}

makeChoices();
start();
addEventListener("hashchange", start);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", compute);
