// The map page: shows what the server's algorithms have computed, and asks them for more.

import { ask, choices, choose, find, fixed, guarded, keys, make, number, paint, say, whenSchemeChanges } from "./common.js";
import { sweep, trial } from "./bellman.js";
import { Board } from "./board.js";
import { Chart } from "./chart.js";

const TICK = 60; // milliseconds between two requests while running
const PATIENCE = 0.15; // seconds of computing that one may take, so that a click is answered soon
const GREEK = { gamma: "γ discount", lr: "α step size", epsilon: "ε exploration" };
const state = { now: null, view: "learned", tool: "look", cell: null, running: false, busy: false };
const board = new Board(find("board"), look, pick);
const convergence = new Chart(find("charts"), { title: "convergence", log: true, height: 180 });
const returns = new Chart(find("charts"), { title: "return of an episode", height: 180 });
const LEADS = {
  model: "Press Run and watch the values spread over the map, from where something is earned. Point at a cell to see where its number comes from.",
  tries: "Press Run: the dots try actions, and learn from what happens to them. Point at a cell to see what was learned there last.",
};

let sent = 0, newest = 0;

// Ask, and draw what comes, unless the answer to a later request was drawn already.
async function refresh(request) {
  const mine = ++sent;
  const answer = await guarded(request);
  if (answer && mine > newest) {
    newest = mine;
    const other = !state.now || state.now.algo !== answer.algo;
    state.now = answer;
    if (other) furnish();
    draw();
  }
  return Boolean(answer);
}

function furnish() {
  const now = state.now, played = now.visits !== null || "epsilon" in now.tunable;
  find("source").textContent = now.source;
  find("summary").textContent = now.algos.find((one) => one.name === now.algo).summary;
  find("lead").textContent = played ? LEADS.tries : LEADS.model;
  find("lab").classList.toggle("wide", now.world.columns >= 2 * now.world.rows);
  const tabs = now.algos.map((one) => [one.name, one.title]);
  if (!find("algos").children.length) choices(find("algos"), "aria-selected", tabs, now.algo, open);
  choose(find("algos"), "aria-selected", now.algo);
  const views = [["learned", "Learned"], ["optimal", "Optimal V*"], ...(played ? [["visits", "Visits"]] : [])];
  if (!views.some(([name]) => name === state.view)) state.view = "learned";
  choices(find("views"), "aria-pressed", views, state.view, (view) => ((state.view = view), draw()));
  const tools = [["look", "Look"], ...Object.keys(now.world.cells).map((name) => [name, `Move ${name}`])];
  choices(find("tools"), "aria-pressed", tools, state.tool, (tool) => ((state.tool = tool), draw()));
  find("tools").hidden = tools.length === 1;
  returns.node.hidden = !played;
  stretch();
  sliders();
}

// The charts take what height is left beside the map.
function stretch() {
  const shown = [convergence, returns].filter((chart) => !chart.node.hidden), host = find("charts");
  const narrow = matchMedia("(max-width: 1000px)").matches; // the page grows with its charts there
  const columns = getComputedStyle(host).gridTemplateColumns.split(" ").length, rows = Math.ceil(shown.length / columns);
  const height = narrow ? 180 : Math.max(150, Math.min(640, host.clientHeight / rows - 40));
  for (const chart of shown) {
    if (Math.abs(chart.height - height) < 2) continue;
    chart.height = height;
    chart.draw();
  }
}

function sliders() {
  const now = state.now, send = (path, body) => refresh(() => ask(path, { algo: now.algo, ...body }));
  const rows = [["gamma", GREEK.gamma, now.gamma, 0.99, "how much a step later counts", (x) => send("world", { gamma: x })]];
  for (const [name, { value, help }] of Object.entries(now.chances)) {
    rows.push([name, `${name} probability`, value, 1, help, (x) => send("world", { chances: { [name]: x } })]);
  }
  for (const name of Object.keys(now.tunable)) {
    rows.push([name, GREEK[name], now.tunable[name], 1, "", (x) => send("tune", { [name]: x })]);
  }
  find("sliders").replaceChildren(...rows.map(([id, label, value, max, help, set]) => {
    const output = make("output", { id: `${id}-value`, for: id }, fixed(value));
    const least = id === "lr" ? 0.01 : 0;
    const input = make("input", { type: "range", id, min: least, max, step: 0.01, value });
    input.addEventListener("input", () => (output.textContent = fixed(Number(input.value))));
    input.addEventListener("change", () => guarded(() => set(Number(input.value))));
    return make("label", { title: help }, make("span", {}, label), input, output);
  }));
}

function draw() {
  const now = state.now, world = now.world;
  choose(find("views"), "aria-pressed", state.view);
  choose(find("tools"), "aria-pressed", state.tool);
  find("board").classList.toggle("moving", state.tool !== "look");
  const visits = now.visits ?? world.terminal.map(() => 0), most = Math.max(1, ...visits);
  if (state.view === "visits") {
    board.draw(world, { values: visits }, { size: most, text: (s) => number(visits[s]), agents: now.agents });
  } else {
    board.draw(world, state.view === "optimal" ? world.optimal : now.learned, { agents: now.agents });
  }
  legend(state.view === "visits" ? ["", `${number(most)} visits`] : [`−${fixed(world.scale, 1)} or less`, `+${fixed(world.scale, 1)} or more`]);
  state.cell = state.cell === null ? board.highest() : board.state(board.place(state.cell).cell); // its layer may be another
  figures();
  charts();
  cell();
  for (const name of ["lr", "epsilon"]) {
    const input = find(name);
    if (!input || document.activeElement === input) continue;
    input.value = now.tunable[name];
    find(`${name}-value`).textContent = fixed(now.tunable[name]);
  }
  for (const [name, value] of [["gamma", now.gamma], ...Object.entries(now.chances).map(([n, x]) => [n, x.value])]) {
    if (find(name) && document.activeElement !== find(name)) {
      find(name).value = value;
      find(`${name}-value`).textContent = fixed(value);
    }
  }
}

function legend([low, high]) {
  find("low").textContent = low;
  find("high").textContent = high;
  const steps = Array.from({ length: 24 }, (_, i) => make("b"));
  steps.forEach((node, i) => paint(node, low ? (i / 23) * 2 - 1 : i / 23));
  find("ramp").replaceChildren(...steps);
}

function figures() {
  const now = state.now, c = now.curves;
  const rows = [["iteration", number(now.iteration)], ["largest change", number(c.change.at(-1))], ["distance to V*", number(c.distance.at(-1))]];
  if ("improvements" in now.metrics) rows.push(["improvements", number(now.metrics.improvements) + (now.metrics.stable ? ", stable" : "")]);
  if (now.visits) rows.push(["environment steps", number(now.env_steps)]);
  if (c.returns.length) rows.push(["return", number(c.returns.at(-1)[1])]);
  find("figures").replaceChildren(...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function charts() {
  const c = state.now.curves, over = (ys) => c.iteration.map((x, i) => [x, ys[i]]);
  convergence.set([{ name: "largest change", points: over(c.change) }, { name: "distance to V*", points: over(c.distance) }], c.altered);
  if (!returns.node.hidden) returns.set([{ name: "mean of the last 100", points: c.mean }, { name: "each", points: c.returns, style: 2 }], c.altered);
}

let asked = 0;

// The update of the cell that was pointed at last: its numbers are the server's.
async function cell() {
  const now = state.now, world = now.world, at = state.cell, mine = ++asked;
  find("about").textContent = `Update of ${board.where(at)}`;
  if (world.terminal[at] || world.closed[at]) {
    find("update").replaceChildren(make("p", {}, world.terminal[at] ? "The episode ends here: nothing comes after, so V = 0." : "No episode comes here."));
    board.explain(at, {});
    return;
  }
  const answer = await ask(`cell?algo=${encodeURIComponent(now.algo)}&state=${at}`).catch(() => null);
  if (!answer || mine !== asked) return;
  const value = now.learned.values[at], given = { world, value, algo: now.algo, where: (s) => board.where(s) };
  find("update").replaceChildren(...(answer.backups ? sweep(answer, given) : trial(answer, given)), facts(at));
  const ways = answer.backups ? answer.backups.flatMap((one) => one.outcomes.map((way) => way.state)) : answer.update ? [answer.update.after] : [];
  board.explain(at, Object.fromEntries(ways.map((s) => [board.place(s).cell, true])));
}

function facts(at) {
  const now = state.now, rows = [["V", fixed(now.learned.values[at], 4)], ["V*", fixed(now.world.optimal.values[at], 4)]];
  if (now.visits) rows.push(["visits", number(now.visits[at])]);
  return make("dl", { class: "figures" }, ...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function look(at) {
  state.cell = at;
  if (state.now) cell();
}

function pick(at) {
  if (state.tool === "look") return;
  const columns = state.now.world.columns;
  const cells = { [state.tool]: [Math.floor(at / columns), at % columns] };
  say("");
  refresh(() => ask("world", { algo: state.now.algo, cells }));
}

async function open(algo) {
  pause();
  say("");
  await refresh(() => ask(`lab?algo=${encodeURIComponent(algo)}`));
}

async function step(steps = 1) {
  if (state.busy) return false;
  state.busy = true;
  const went = await refresh(() => ask("step", { algo: state.now.algo, steps, seconds: PATIENCE }));
  state.busy = false;
  return went;
}

const pace = () => 10 ** Number(find("speed").value);

function converged() {
  const c = state.now.curves;
  return state.now.visits === null && c.change.at(-1) < 1e-12 && c.distance.at(-1) < 1e-9;
}

async function run() {
  state.running = true;
  find("run").textContent = "Pause";
  let owed = 1, before = performance.now();
  while (state.running) {
    const now = performance.now();
    owed = Math.min(owed + ((now - before) / 1000) * pace(), 1000);
    before = now;
    if (owed >= 1) {
      const steps = Math.floor(owed);
      owed -= steps;
      if (!(await step(steps))) owed += steps;
      if (!find("notice").hidden && find("notice").classList.contains("wrong")) pause();
      if (state.running && converged()) {
        pause();
        say(`Converged: nothing changes any more. ${Object.keys(state.now.world.cells).length ? "Move something, or change γ" : "Change γ"}.`);
      }
    }
    await new Promise((done) => setTimeout(done, TICK));
  }
}

function pause() {
  state.running = false;
  find("run").textContent = "Run";
}

const toggle = () => (say(""), state.running ? pause() : run());
const once = () => (say(""), pause(), step());
find("run").addEventListener("click", toggle);
find("step").addEventListener("click", once);
find("reset").addEventListener("click", () => (say(""), pause(), refresh(() => ask("reset", { algo: state.now.algo }))));
find("speed").addEventListener("input", speed);
new ResizeObserver(stretch).observe(find("lab"));
keys({ " ": toggle, ArrowRight: once });
whenSchemeChanges(() => state.now && draw());

function speed() {
  find("pace").textContent = `${number(pace(), 2)}/s`;
}

speed();
refresh(() => ask("lab"));
