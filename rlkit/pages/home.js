// The home of runs: a table that is sorted, filtered and kept new, and below it the curves of the runs that are selected.

import { ask, find, guarded, make, number, say, token, watched } from "./common.js";
import { Curves } from "./curves.js";

const EVERY = 2000; // milliseconds between two looks
const MOST = 8; // runs that are laid over each other; a style is for each
const COLUMNS = [
  ["name", "run"], ["algo", "algorithm"], ["env", "environment"], ["seed", "seed"], ["state", "state"], ["env_steps", "env steps"],
  ["before", "before"], ["after", "after"], ["seconds", "seconds"], ["date", "started"],
];
const NUMBERS = new Set(["seed", "env_steps", "before", "after", "seconds", "date"]);
const TITLES = { env_steps: "Environment steps; on text the tokens written", before: "Score before training, on the test split", after: "Score after training, on the test split" };
const state = { runs: [], left: 0, sort: "date", down: true, chosen: new Map() }; // chosen: key → {style, metrics}
let curves = null, asked = "";

const address = (page, key) => `${page}?token=${encodeURIComponent(token)}&run=${key}`;

function heads() {
  const cell = ([name, text]) => {
    const on = state.sort === name;
    const sort = make("button", { type: "button", title: TITLES[name], "data-sort": name, "data-focus": `sort-${name}`, onclick: () => sortBy(name) }, text, make("span", { "aria-hidden": "true" }, on ? (state.down ? " ↓" : " ↑") : ""));
    return make("th", { scope: "col", class: NUMBERS.has(name) ? "number" : "", "aria-sort": on ? (state.down ? "descending" : "ascending") : "none" }, sort);
  };
  find("heads").replaceChildren(make("th", { scope: "col" }, make("span", { class: "unseen" }, "selected")), ...COLUMNS.map(cell));
}

function sortBy(name) {
  state.down = state.sort === name ? !state.down : name === "date" || name === "after";
  state.sort = name;
  draw();
  find("heads").querySelector(`[data-sort="${name}"]`).focus();
}

function order(a, b) {
  const x = a[state.sort], y = b[state.sort], way = state.down ? -1 : 1;
  if (x === y) return a.name < b.name ? -1 : 1;
  if (x === null || x === undefined) return 1; // what is not known comes last, whichever way
  if (y === null || y === undefined) return -1;
  if (typeof x === "number" && typeof y === "number") return (x - y) * way;
  return String(x).localeCompare(String(y), "en", { numeric: true }) * way;
}

// Every word of the filter stands somewhere in the row.
function wanted(run) {
  const text = [run.name, run.algo, run.env, run.state, `seed ${run.seed}`].join(" ").toLowerCase();
  return find("filter").value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function draw() {
  const focused = document.activeElement?.dataset?.focus;
  heads();
  const shown = state.runs.filter(wanted).sort(order);
  find("rows").replaceChildren(...shown.map(row));
  const count = shown.length === state.runs.length ? `${number(shown.length)} ${shown.length === 1 ? "run" : "runs"}` : `${number(shown.length)} of ${number(state.runs.length)} runs`;
  find("count").textContent = state.left ? `${count}, ${number(state.left)} more not read yet` : count;
  find("empty").hidden = shown.length > 0;
  find("empty").textContent = state.runs.length ? "No run has all these words." : "There is no run yet. One appears here as soon as it starts.";
  if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

function row(run) {
  const held = state.chosen.get(run.key), broken = run.state === "damaged";
  const box = make("input", { type: "checkbox", "aria-label": `Select ${run.name}`, checked: Boolean(held), disabled: broken, "data-focus": `box-${run.key}`, onchange: (event) => guarded(() => pick(run, event.target)) });
  const name = broken ? make("span", {}, run.name) : make("a", { href: address("run.html", run.key), "data-focus": `link-${run.key}` }, run.name);
  const plain = (text, title) => make("td", { title }, text ?? "–");
  const figure = (text, title) => make("td", { class: "number", title }, text);
  const first = [make("td", { class: held ? "picked" : "" }, box, ...(held ? [sample(held.style)] : [])), make("th", { scope: "row" }, name)];
  if (broken) return make("tr", { class: "damaged" }, ...first, make("td", { colspan: COLUMNS.length - 1 }, make("span", { class: "badge" }, "damaged"), ` ${run.reason}`));
  const when = new Date(run.date * 1000);
  return make("tr", {}, ...first, plain(run.algo), plain(run.env), figure(String(run.seed)),
    make("td", {}, make("span", { class: `badge ${run.state}` }, run.state)), figure(number(run.env_steps)), figure(number(run.before), run.metric), figure(number(run.after), run.metric),
    figure(run.seconds === null ? "–" : number(Math.round(run.seconds))), figure(when.toLocaleString("sv").slice(0, 16)));
}

const sample = (style) => make("svg", { class: "sample", viewBox: "0 0 22 8", "aria-hidden": "true" }, make("path", { d: "M0 4L22 4", class: `series s${style}` }));

async function pick(run, box) {
  if (!box.checked) state.chosen.delete(run.key);
  else if (state.chosen.size >= MOST) {
    box.checked = false;
    return say(`${MOST} runs can be laid over each other: leave one out first`, true);
  } else {
    const used = new Set([...state.chosen.values()].map((one) => one.style));
    const style = [...Array(MOST).keys()].find((i) => !used.has(i));
    state.chosen.set(run.key, { name: run.name, style, tokens: run.tokens, file: "", offset: 0, lines: [] });
  }
  say("");
  draw();
  await lay();
}

async function lay() {
  find("none").hidden = find("overlay").hidden = !state.chosen.size;
  if (!state.chosen.size) return;
  const fresh = await Promise.all([...state.chosen].map(([key, one]) => more(key, one)));
  const keys = [...state.chosen.keys()].join();
  if (fresh.some(Boolean) || keys !== asked || !curves) {
    curves ??= new Curves(find("curves"));
    curves.set([...state.chosen.values()]);
  }
  if (keys !== asked) await differences(keys);
}

// What a run has written since, read once: two who ask at a time get the same lines.
const more = (key, one) => (one.reading ??= read(key, one).finally(() => (one.reading = null)));

async function read(key, one) {
  let any = false;
  for (;;) { // a large file comes in parts
    const got = await ask(`metrics?run=${key}&file=${one.file}&offset=${one.offset}`);
    if (got.from === 0) one.lines = [];
    for (const line of got.lines) one.lines.push(line);
    const on = got.offset > one.offset || got.file !== one.file;
    Object.assign(one, { file: got.file, offset: got.offset });
    any ||= got.lines.length > 0;
    if (!on || !got.lines.length) return any;
  }
}

async function differences(keys) {
  const chosen = [...state.chosen.values()];
  const { rows } = await ask(`differences?runs=${keys}`);
  if (keys !== [...state.chosen.keys()].join()) return; // others are selected by now
  asked = keys;
  if (!rows.length) {
    find("differences").replaceChildren(make("caption", {}, chosen.length < 2 ? "Select a second run to see what they differ in." : "All settings are the same."));
    return;
  }
  const head = make("tr", {}, make("th", { scope: "col" }, "key"), ...chosen.map((one) => make("th", { scope: "col" }, sample(one.style), one.name)));
  const body = rows.map((each) => make("tr", {}, make("th", { scope: "row" }, each.key), ...each.values.map((value) => make("td", {}, value ?? "–"))));
  find("differences").replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
}

async function look() {
  const answer = await ask("home");
  const same = answer.left === state.left && JSON.stringify(answer.runs) === JSON.stringify(state.runs);
  Object.assign(state, { runs: answer.runs, left: answer.left });
  find("where").textContent = answer.folders.join(", ");
  if (!same || !find("heads").children.length) draw();
  const pages = answer.comparisons.map((one) => make("li", {}, one.page ? make("a", { href: address("/api/comparison", one.key) }, one.name) : `${one.name} (no page yet)`));
  find("comparisons").hidden = !pages.length;
  if (pages.length && !find("pages").contains(document.activeElement)) find("pages").replaceChildren(...pages);
  await lay();
}

find("filter").addEventListener("input", draw);
find("none").addEventListener("click", () => guarded(() => {
  state.chosen.clear();
  asked = "";
  draw();
  return lay();
}));
await watched(look);
for (;;) {
  await new Promise((done) => setTimeout(done, EVERY));
  if (!document.hidden) await watched(look);
}
