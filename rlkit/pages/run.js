// The page of a run: its header and its curves, refreshed while it goes on, and the other parts when they are opened.

import { ask, choices, choose, find, guarded, home, make, number, say, watched } from "./common.js";
import { Board } from "./board.js";
import { Curves } from "./curves.js";
import { openCompletions, openTokens } from "./tokens.js";
import { closeReplay, openReplay } from "./replay.js";

const EVERY = 2000; // milliseconds between two looks at a run that goes on
const NAMES = { curves: "Curves", tokens: "Tokens", completions: "Completions", replay: "Replay", map: "Map" };
const STYLE = { before: "s2", ceiling: "s1", after: "s0" };
const metrics = { file: "", offset: 0, lines: [] };
const drawn = new Curves(find("panels"));
let run = null, shown = null;

async function look() {
  const [about, more] = await Promise.all([ask("run"), ask(`metrics?file=${metrics.file}&offset=${metrics.offset}`)]);
  if (run && about.what !== run.what) return location.reload(); // another run is in the folder now
  const same = JSON.stringify(about) === JSON.stringify(run);
  run = about;
  if (more.from === 0) metrics.lines = [];
  for (const line of more.lines) metrics.lines.push(line);
  metrics.file = more.file;
  metrics.offset = more.offset;
  if (!same || more.lines.length) head(); // what did not change stays, and with it what is selected there
  if (more.lines.length) curves();
}

function head() {
  const state = find("state"), last = metrics.lines.at(-1);
  document.title = `${run.algo} on ${run.env} · rlkit`;
  find("title").replaceChildren("rlkit ", make("span", { title: run.about.join("\n") }, `${run.algo} on ${run.env}, seed ${run.seed}`));
  state.textContent = run.state + (run.state === "running" && last ? ` · ${progress(last)}` : "");
  state.classList.toggle("running", run.state === "running");
  find("where").textContent = run.folder;
  if (find("config").textContent !== run.config) find("config").textContent = run.config;
  if (run.parts.join() !== [...find("tabs").children].map((tab) => tab.dataset.value).join()) {
    choices(find("tabs"), "aria-selected", run.parts.map((part) => [part, NAMES[part]]), shown ?? "curves", open);
  }
  find("head").replaceChildren(...result());
}

function progress(last) {
  const [[unit, total]] = Object.entries(run.length).concat([["iterations", null]]);
  const done = unit === "iterations" ? last.iteration : last.env_steps;
  return `${number(done)}${total ? ` of ${number(total)}` : ""} ${unit === "env_steps" ? (run.tokens ? "tokens" : "steps") : unit}`;
}

function result() {
  const rows = ["before", "ceiling", "after"].filter((name) => run.evaluation[name]).map((name) => [name, run.evaluation[name]]);
  const parts = [];
  if (rows.length) {
    const first = rows[0][1];
    const figures = rows.map(([name, e]) => make("div", { title: `95 % interval, ${e.episodes} episodes or problems of the test split` },
      make("dt", {}, make("svg", { class: "sample", viewBox: "0 0 8 8", "aria-hidden": "true" }, make("circle", { cx: 4, cy: 4, r: 4, class: `dot ${STYLE[name]}` })), name), make("dd", {}, number(e.mean)), make("dd", { class: "within" }, e.episodes === 1 && e.low === e.high ? "no interval" : `${number(e.low)} to ${number(e.high)}`)));
    const title = make("div", {}, make("b", {}, `greedy ${first.metric}`), make("div", { class: "quiet" }, `${number(first.episodes)} test ${run.unit || "episodes or problems"}, 95 %`));
    parts.push(make("div", { class: "result" }, title, make("dl", { class: "figures" }, ...figures), intervals(rows)));
  }
  if (run.reason) parts.push(make("p", { class: "quiet" }, `Only what was written can be shown: ${run.reason}`));
  if (run.alarms.length) {
    parts.push(make("ul", { class: "alarms" }, ...run.alarms.map((a) => make("li", {}, make("b", {}, a.name), `iteration ${a.iteration}: ${a.message}`))));
  }
  return parts;
}

// The means and their intervals on one line.
function intervals(rows) {
  const low = Math.min(...rows.map(([, e]) => e.low)), high = Math.max(...rows.map(([, e]) => e.high));
  const x = (value) => 8 + ((value - low) / (high - low || 1)) * 264;
  const parts = rows.flatMap(([name, e], i) => {
    const y = 8 + i * 12, style = STYLE[name];
    return [make("line", { x1: x(e.low), x2: x(e.high), y1: y, y2: y, class: `series whisker ${style}` }), make("circle", { cx: x(e.mean), cy: y, r: 4, class: `dot ${style}` })];
  });
  const ends = [8, 272].map((at) => make("line", { x1: at, x2: at, y1: 2, y2: 38, class: "rule" }));
  return make("svg", { class: "interval", viewBox: "0 0 280 40", "aria-hidden": "true" }, ...ends, ...parts);
}

const curves = () => drawn.set([{ name: "", lines: metrics.lines, tokens: run?.tokens }]);

function open(part) {
  if (shown === "replay" && part !== "replay") closeReplay();
  shown = part;
  choose(find("tabs"), "aria-selected", part);
  for (const name of Object.keys(NAMES)) find(name).hidden = name !== part;
  say("");
  const opened = { curves, tokens: openTokens, completions: openCompletions, replay: openReplay, map: openMap }[part];
  return guarded(opened);
}

let board = null, view = "learned";

async function openMap() {
  const answer = await ask("map", {});
  board ??= new Board(find("board"));
  const draw = () => {
    choose(find("views"), "aria-pressed", view);
    board.draw(answer.world, view === "optimal" ? answer.world.optimal : answer.learned);
  };
  choices(find("views"), "aria-pressed", [["learned", "Learned"], ["optimal", "Optimal V*"]], view, (name) => ((view = name), draw()));
  find("mapped").textContent = `after iteration ${number(answer.iteration)}, γ = ${answer.gamma}`;
  draw();
}

async function watch() {
  for (;;) {
    await new Promise((done) => setTimeout(done, EVERY));
    if (!document.hidden) await watched(look);
  }
}

if (home) find("up").append(make("a", { href: home }, "← all runs"));
await watched(look);
if (run) await open("curves");
watch();
