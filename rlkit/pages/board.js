// The map: every state a cell with its value, its greedy actions, and what lies there.

import { fixed, make, number, paint } from "./common.js";

// An arrow to the right: in the middle of its cell, or one of several that start there.
const ALONE = "M-8 0L8 0M8 0L3.5 -4.5M8 0L3.5 4.5";
const TIED = "M4 0L13 0M13 0L8.5 -4M13 0L8.5 4";

export class Board {
  // looked(state) when a cell is pointed at or focused, null when left; picked(state) when it is clicked
  constructor(host, looked = () => {}, picked = () => {}) {
    Object.assign(this, { host, looked, picked, cells: [], columns: 0 });
    host.setAttribute("role", "grid");
    host.addEventListener("keydown", (event) => this.walk(event));
    host.addEventListener("pointerleave", () => looked(null));
  }

  build(world) {
    if (this.cells.length === world.rows * world.columns && this.columns === world.columns) return;
    this.columns = world.columns;
    this.cells = [];
    const rows = [];
    for (let row = 0; row < world.rows; row++) {
      const line = make("div", { role: "row", class: "row" });
      for (let column = 0; column < world.columns; column++) line.append(this.cell(world, row * world.columns + column));
      rows.push(line);
    }
    this.host.style.setProperty("--columns", Math.max(world.columns, world.rows));
    this.host.replaceChildren(...rows);
    this.cells[0].node.tabIndex = 0;
  }

  cell(world, state) {
    const arrows = world.moves.map(([down, right]) => {
      const angle = (Math.atan2(down, right) * 180) / Math.PI;
      return make("path", { transform: `rotate(${angle})`, class: "arrow" });
    });
    const dot = make("circle", { r: 2.2, class: "all" });
    const svg = make("svg", { viewBox: "-16 -16 32 32", "aria-hidden": "true" }, ...arrows, dot);
    const value = make("span", { class: "value" }), mark = make("span", { class: "what" }), agents = make("span", { class: "agents" });
    const node = make("button", { type: "button", role: "gridcell", class: "cell", tabindex: -1 }, agents, mark, svg, value);
    node.addEventListener("pointerenter", () => this.looked(state));
    node.addEventListener("focus", () => this.looked(state));
    node.addEventListener("click", () => this.picked(state));
    this.cells.push({ node, svg, arrows, dot, value, mark, agents });
    return node;
  }

  // shown: {values, best}; text(state) replaces the number; size scales the colour; counts are of agents per state
  draw(world, shown, { size = world.scale, text = null, agents = [] } = {}) {
    this.build(world);
    const names = Object.fromEntries(Object.entries(world.cells).map(([name, [r, c]]) => [r * world.columns + c, name]));
    const counts = new Map();
    for (const state of agents) counts.set(state, (counts.get(state) ?? 0) + 1);
    this.cells.forEach((cell, state) => {
      const over = world.terminal[state], value = over ? world.worth[state] : shown.values[state];
      paint(cell.node, text && over ? 0 : value / size);
      cell.node.classList.toggle("over", over);
      cell.mark.textContent = names[state] ?? "";
      const printed = over ? `${value > 0 ? "+" : ""}${number(value)}` : text ? text(state) : fixed(value);
      if (cell.value.textContent !== printed) cell.value.textContent = printed;
      const best = shown.best ? shown.best[state] : [], all = best.length > 1 && best.every(Boolean);
      cell.svg.classList.toggle("off", over || !shown.best);
      const shape = best.filter(Boolean).length === 1 ? ALONE : TIED;
      cell.arrows.forEach((arrow, a) => {
        arrow.classList.toggle("off", all || !best[a]);
        if (arrow.getAttribute("d") !== shape) arrow.setAttribute("d", shape);
      });
      cell.dot.classList.toggle("off", !all);
      cell.agents.textContent = "●".repeat(Math.min(counts.get(state) ?? 0, 4));
      const where = `row ${Math.floor(state / this.columns)}, column ${state % this.columns}`;
      cell.node.setAttribute("aria-label", `${where}${names[state] ? `, ${names[state]}` : ""}: ${printed}`);
    });
  }

  walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
    const at = this.cells.findIndex((cell) => cell.node === document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const sideways = Math.abs(step) === 1 && Math.floor((at + step) / this.columns) !== Math.floor(at / this.columns);
    const next = this.cells[at + step];
    if (!next || (sideways && this.columns > 1)) return;
    this.cells[at].node.tabIndex = -1;
    next.node.tabIndex = 0;
    next.node.focus();
  }
}

// The four values of one state, each on the side where its action goes.
export function compass(world, learned, state) {
  const parts = world.moves.map(([down, right], a) => {
    const node = make("span", { class: `q ${learned.best[state][a] ? "best" : ""}` }, fixed(learned.q[state][a], 3));
    node.style.gridRow = down + 2;
    node.style.gridColumn = right + 2;
    paint(node, learned.q[state][a] / world.scale);
    return node;
  });
  const name = make("span", { class: "centre" }, `${Math.floor(state / world.columns)}, ${state % world.columns}`);
  return [...parts, name];
}
