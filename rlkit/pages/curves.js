// The curves of one run or several: what x is, smoothing, a logarithmic axis; each metric explained, enlarged, saved.

import { ask, find, make, number } from "./common.js";
import { Chart } from "./chart.js";

const GROUPS = { rollout: "Training: what was played", eval: "Validation", train: "Training: what was learned", time: "Time", metric: "Measures of the task", reward: "Reward functions", doctor: "Alarms" };
const FIRST = ["rollout/return", "eval/return", "eval/accuracy"];
const X = { env_steps: "environment steps", iteration: "iteration", seconds: "seconds" };
const STEPS = { true: "tokens", false: X.env_steps, both: "environment steps or tokens" };

export class Curves {
  constructor(host) {
    this.host = host;
    this.charts = new Map();
    this.runs = [];
    this.x = make("select", {}, ...Object.entries(X).map(([value, text]) => make("option", { value }, text)));
    this.smooth = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: 0 });
    this.much = make("output", {}, "0");
    this.log = make("input", { type: "checkbox" });
    this.tools = make("div", { class: "tools" }, make("label", {}, "x-axis ", this.x), make("label", { class: "smooth", title: "An exponential mean; the measured points stay faintly visible" }, "smoothing ", this.smooth, this.much), make("label", {}, this.log, " logarithmic"));
    this.panels = make("div", { class: "panel-groups" });
    this.once = make("dl", { class: "figures" });
    this.onceBox = make("div", { class: "group", hidden: true }, make("h2", {}, "Measured once so far"), this.once);
    host.append(this.tools, this.panels, this.onceBox);
    for (const input of [this.x, this.smooth, this.log]) input.addEventListener("input", () => this.draw());
    this.answer = ask("meanings").then((answer) => ((this.meanings = answer), this.draw()));
  }

  // runs: [{name, style, lines, tokens}]: the lines of metrics.jsonl, and whether their steps are tokens
  set(runs) {
    this.runs = runs;
    const units = new Set(runs.map((run) => Boolean(run.tokens)));
    this.x.options[0].textContent = STEPS[units.size > 1 ? "both" : [...units][0] ?? false];
    this.draw();
  }

  draw() {
    this.much.textContent = Number(this.smooth.value).toFixed(2);
    const names = [...new Set(this.runs.flatMap((run) => run.lines.flatMap(Object.keys)))].filter((name) => name.includes("/"));
    const rank = (name) => (FIRST.indexOf(name) + FIRST.length + 1) % (FIRST.length + 1);
    const groups = [...Object.keys(GROUPS), ...names.map((name) => name.split("/")[0])];
    const group = (name) => groups.indexOf(name.split("/")[0]);
    names.sort((a, b) => group(a) - group(b) || rank(a) - rank(b) || (a < b ? -1 : 1));
    const charted = new Set(), once = [];
    for (const name of names) {
      if (name === "eval/ceiling" && names.includes("eval/accuracy")) continue; // drawn with the accuracy
      const series = this.series(name);
      if (Math.max(...series.map((one) => one.points.length)) < 2) {
        once.push([name, series]);
        continue;
      }
      charted.add(name);
      const chart = this.charts.get(name) ?? this.place(name);
      Object.assign(chart, { log: this.log.checked, xName: this.x.selectedOptions[0].textContent });
      chart.explain(this.meaning(name));
      chart.set(series);
    }
    for (const [name, chart] of this.charts) chart.node.hidden = !charted.has(name);
    for (const part of this.panels.children) part.hidden = ![...part.querySelectorAll(".chart")].some((node) => !node.hidden);
    this.onceBox.hidden = !once.length;
    this.once.replaceChildren(...once.map(([name, series]) => make("div", { title: this.meaning(name) }, make("dt", {}, name),
      ...series.filter((one) => one.points.length).map((one) => make("dd", {}, `${number(one.points[0][1])}${one.name && series.length > 1 ? ` (${one.name})` : ""}`)))));
  }

  series(name) {
    const many = this.runs.length > 1;
    const found = this.runs.map((run) => this.one(run, name, many ? run.name : "", run.style ?? 0));
    if (name === "eval/accuracy" && !many) {
      const ceiling = this.one(this.runs[0], "eval/ceiling", "ceiling", 1);
      if (ceiling.points.length) return [{ ...found[0], name: "accuracy" }, ceiling];
    }
    return found;
  }

  one(run, name, called, style) {
    const raw = run.lines.filter((line) => name in line && Number.isFinite(line[this.x.value])).map((line) => [line[this.x.value], line[name]]);
    return { name: called, style, raw, points: smoothed(raw, Number(this.smooth.value)), faint: Number(this.smooth.value) > 0 };
  }

  meaning(name) {
    if (!this.meanings) return "";
    const family = Object.entries(this.meanings.families).find(([start]) => name.startsWith(start));
    return this.meanings.metrics[name] ?? family?.[1] ?? "";
  }

  place(name) {
    const group = name.split("/")[0], id = `group-${group}`;
    let host = find(id);
    if (!host) {
      host = make("div", { class: "panels", id });
      this.panels.append(make("section", { class: "group", "aria-label": GROUPS[group] ?? group }, make("h2", {}, GROUPS[group] ?? group), host));
    }
    const chart = new Chart(host, { title: title(name), height: 190, tools: true, titles: true, name });
    this.charts.set(name, chart);
    return chart;
  }
}

const title = (name) => name.split("/").slice(1).join("/").replaceAll("_", " ");

// An exponential mean whose beginning is not drawn towards 0.
function smoothed(points, weight) {
  if (!weight) return points;
  let mean = 0, share = 0;
  return points.map(([x, y]) => {
    if (y === null) return [x, y];
    mean = weight * mean + (1 - weight) * y;
    share = weight * share + (1 - weight);
    return [x, mean / share];
  });
}
