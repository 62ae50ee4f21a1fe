// A line chart in SVG: several series, a logarithmic axis where it is wanted, values under the pointer.

import { ends, guarded, make, number } from "./common.js";
import { fileName, picture, save, standing, table } from "./export.js";

const RIGHT = 24, TOP = 8; // half of the last label stands to the right of its tick

export class Chart {
  // series: [{name, points: [[x, y]]}] in the order of the legend; tools: it can be enlarged and saved; titles: of the axes
  constructor(host, { title, height = 150, log = false, xName = "iteration", tools = false, titles = false, name = title }) {
    Object.assign(this, { title, height, log, xName, tools, titles, name, series: [], marks: [] });
    [this.left, this.bottom] = titles ? [66, 38] : [50, 20];
    this.legend = make("div", { class: "legend" });
    this.svg = make("svg", { role: "img", "aria-label": title, tabindex: 0 });
    this.tip = make("div", { class: "tip", role: "status", hidden: true });
    this.about = make("span", { class: "about", hidden: true });
    this.node = make("figure", { class: "chart" }, make("figcaption", {}, make("b", {}, title), ...(tools ? this.buttons() : []), this.about, this.legend), this.svg, this.tip);
    host.append(this.node);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("keydown", (event) => this.walk(event));
    this.svg.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  set(series, marks = []) {
    this.series = series.map((one, i) => ({ ...one, style: one.style ?? i }));
    this.marks = marks;
    this.draw();
  }

  // Say what it shows: on hover, and with the button of keyboard and touch.
  explain(text) {
    if (this.about.textContent === text) return;
    this.about.textContent = text;
    this.node.querySelector("figcaption b").title = text;
    if (this.why) this.why.hidden = !text;
  }

  buttons() {
    this.why = make("button", { type: "button", "aria-label": `What ${this.title} means`, "aria-expanded": "false", hidden: true, onclick: () => {
      this.about.hidden = !this.about.hidden;
      this.why.setAttribute("aria-expanded", String(!this.about.hidden));
    } }, "?");
    const saved = (end, made) => make("button", { type: "button", "aria-label": `Save ${this.title} as ${end.toUpperCase()}`, title: `Save as ${end.toUpperCase()}`, onclick: () => guarded(async () => save(await made(this), fileName(this.name, end))) }, end.toUpperCase());
    const larger = make("button", { type: "button", "aria-label": `Enlarge ${this.title}`, title: "Enlarge", onclick: () => this.enlarge() }, "⤢");
    return [make("span", { class: "chart-tools" }, this.why, saved("png", picture), saved("svg", standing), saved("csv", table), ...(this.large ? [] : [larger]))];
  }

  enlarge() {
    const close = make("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close");
    const dialog = make("dialog", { class: "enlarged", "aria-label": this.title }, close);
    document.body.append(dialog);
    dialog.showModal();
    const { title, log, xName, titles, name } = this;
    this.big = new Chart(dialog, { title, log, xName, titles, name, tools: true, height: Math.max(240, Math.min(innerHeight - 190, 640)) });
    this.big.node.querySelector("[title=Enlarge]").remove();
    this.big.explain(this.about.textContent);
    this.big.about.hidden = false;
    this.big.set(this.series, this.marks);
    dialog.addEventListener("close", () => {
      dialog.remove();
      this.big = null;
    });
  }

  draw() {
    if (this.big) Object.assign(this.big, { log: this.log, xName: this.xName }).set(this.series, this.marks);
    const width = this.svg.clientWidth;
    if (!width) return;
    this.width = width;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.style.height = `${this.height}px`;
    this.legend.replaceChildren(...this.series.filter((one) => one.name).map(key));
    const shown = this.series.map((one) => ({ ...one, whole: one.points, points: one.points.filter((point) => this.drawn(point)) }));
    this.shown = shown.filter((one) => one.points.length);
    const all = this.shown.flatMap((one) => one.points);
    if (!all.length) {
      const none = !this.series.some((one) => one.points.length) ? "nothing yet" : this.log ? "no number above 0" : "no finite number";
      this.svg.replaceChildren(make("text", { x: width / 2, y: this.height / 2, class: "empty" }, none));
      return;
    }
    const raw = this.shown.flatMap((one) => (one.faint ? one.raw.filter((point) => this.drawn(point)) : []));
    this.fit(all.concat(raw));
    const parts = [...this.axes()];
    for (const at of this.marks) if (at >= this.x0 && at <= this.x1) parts.push(this.upright(at, "mark"));
    for (const one of this.shown) parts.push(...this.line(one));
    this.guide = make("g", {});
    this.svg.replaceChildren(...parts, this.guide);
    this.svg.setAttribute("aria-label", `${this.title}: ${this.shown.map((s) => `${s.name || "now"} ${number(s.points.at(-1)[1])}`).join(", ")}`);
  }

  fit(all) {
    const xs = all.map(([x]) => x), ys = all.map(([, y]) => (this.log ? Math.log10(y) : y));
    [this.x0, this.x1] = ends(xs);
    if (this.x0 === this.x1) [this.x0, this.x1] = [this.x0 - 1, this.x1 + 1];
    let [low, high] = ends(ys);
    const least = this.log ? 1 : Math.max(Math.abs(high), Math.abs(low)) * 0.02 || 1;
    if (high - low < least) [low, high] = [low - least / 2, high + least / 2];
    const pad = (high - low) * 0.05;
    [this.y0, this.y1] = [low - pad, high + pad];
  }

  x(value) {
    return this.left + ((value - this.x0) / (this.x1 - this.x0)) * (this.width - this.left - RIGHT);
  }

  y(value) {
    const v = this.log ? Math.log10(value) : value;
    return TOP + ((this.y1 - v) / (this.y1 - this.y0)) * (this.height - TOP - this.bottom);
  }

  *axes() {
    const bottom = this.height - this.bottom;
    for (const tick of this.log ? decades(this.y0, this.y1) : ticks(this.y0, this.y1, 4)) {
      yield make("line", { x1: this.left, x2: this.width - RIGHT, y1: this.y(tick), y2: this.y(tick), class: "rule" });
      yield make("text", { x: this.left - 6, y: this.y(tick) + 4, class: "tick end" }, label(tick));
    }
    if (this.titles) {
      const middle = TOP + (bottom - TOP) / 2, name = this.log ? `${this.title} (log)` : this.title;
      yield make("text", { x: (this.left + this.width - RIGHT) / 2, y: this.height - 4, class: "axis middle" }, this.xName);
      yield make("text", { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, class: "axis middle" }, name.slice(0, Math.floor((bottom - TOP) / 6)));
    }
    for (const tick of ticks(this.x0, this.x1, Math.max(2, Math.floor(this.width / 110)))) {
      yield make("text", { x: this.x(tick), y: bottom + 15, class: "tick middle" }, label(tick));
    }
  }

  // Whether a point has a place: null is not a number, and a logarithm has none of 0.
  drawn([, y]) {
    return y !== null && (!this.log || y > 0);
  }

  // A line through the points, interrupted where one has no place.
  along(points) {
    const start = (i) => !i || !this.drawn(points[i - 1]);
    return points.map(([x, y], i) => (this.drawn([x, y]) ? `${start(i) ? "M" : "L"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}` : "")).join("");
  }

  line(one) {
    const faint = one.faint && one.raw.some((point) => this.drawn(point)) ? [make("path", { d: this.along(one.raw), class: `faint s${one.style}` })] : [];
    const parts = [...faint, make("path", { d: this.along(one.whole), class: `series s${one.style}` })];
    const bare = (i) => !one.whole[i] || !this.drawn(one.whole[i]);
    const alone = one.whole.filter((point, i) => this.drawn(point) && bare(i - 1) && bare(i + 1)); // no line shows them
    const few = one.points.length < 40 ? one.points : alone;
    return [...parts, ...few.map(([x, y]) => make("circle", { cx: this.x(x), cy: this.y(y), r: 2, class: `dot s${one.style}` }))];
  }

  upright(at, name) {
    return make("line", { x1: this.x(at), x2: this.x(at), y1: TOP, y2: this.height - this.bottom, class: name });
  }

  point(event) {
    if (!this.shown?.length) return;
    const box = this.svg.getBoundingClientRect();
    this.show(this.x0 + ((event.clientX - box.left - this.left) / (this.width - this.left - RIGHT)) * (this.x1 - this.x0));
  }

  // ← and → go from point to point.
  walk(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.shown?.length) return;
    event.preventDefault();
    event.stopPropagation();
    const xs = [...new Set(this.shown.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b);
    const now = this.at === undefined ? (step > 0 ? -1 : xs.length) : xs.findIndex((x) => x >= this.at);
    this.show(xs[Math.max(0, Math.min(xs.length - 1, now + step))]);
  }

  show(at) {
    const near = this.shown.map((one) => ({ one, point: nearest(one.points, at) }));
    const x = near.reduce((best, n) => (Math.abs(n.point[0] - at) < Math.abs(best - at) ? n.point[0] : best), near[0].point[0]);
    this.at = x;
    this.guide.replaceChildren(this.upright(x, "guide"), ...near.map((n) =>
      make("circle", { cx: this.x(n.point[0]), cy: this.y(n.point[1]), r: 3.5, class: `dot s${n.one.style}` })));
    const lines = near.map((n) => make("div", {}, `${n.one.name || this.title} ${number(n.point[1], 4)}`));
    this.tip.replaceChildren(make("b", {}, `${this.xName} ${number(x)}`), ...lines);
    this.tip.hidden = false;
    const left = this.x(x) + 14;
    this.tip.style.left = `${left + this.tip.offsetWidth > this.width ? this.x(x) - this.tip.offsetWidth - 14 : left}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.at = undefined;
    this.guide?.replaceChildren();
  }
}

function key(one) {
  const sample = make("svg", { class: "sample", viewBox: "0 0 22 8", "aria-hidden": "true" }, make("path", { d: "M0 4L22 4", class: `series s${one.style}` }));
  return make("span", {}, sample, one.name);
}

function nearest(points, at) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < at) low = middle;
    else high = middle;
  }
  return at - points[low][0] < points[high][0] - at ? points[low] : points[high];
}

// At least two where there is a range: a single one does not say what a distance means.
export function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found.length < 2 && high > low ? ticks(low, high, wanted + 1) : found;
}

function decades(low, high) {
  const every = Math.max(1, Math.ceil((high - low) / 5)), found = [];
  if (high - low < 2) {
    for (let p = Math.floor(low); p <= high; p++) found.push(...[1, 2, 5].map((m) => m * 10 ** p));
    return found.filter((x) => Math.log10(x) >= low && Math.log10(x) <= high);
  }
  for (let p = Math.ceil(low); p <= high; p += every) found.push(10 ** p);
  return found;
}

// A tick in as many digits as it has: two ticks must not have one label, nor 0.00015 that of 0.0002.
export function label(x) {
  const size = Math.abs(x), [unit, sign] = size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  const shown = Number((x / unit).toPrecision(6));
  return size !== 0 && size < 1e-3 ? shown.toExponential() : `${shown}${sign}`;
}
