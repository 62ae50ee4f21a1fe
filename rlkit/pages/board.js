// The map: every cell with the value of its state, its greedy actions, and what lies there.

import { choose, fixed, make, number, paint } from "./common.js";

// An arrow to the right: in the middle of its cell, or one of several that start there.
const ALONE = "M-8 0L8 0M8 0L3.5 -4.5M8 0L3.5 4.5";
const TIED = "M4 0L13 0M13 0L8.5 -4M13 0L8.5 4";

export class Board {
  // looked(state) when a cell is pointed at or focused; picked(cell) when it is clicked
  constructor(host, looked = () => {}, picked = () => {}) {
    Object.assign(this, { host, looked, picked, cells: [], columns: 0, layer: [], follows: false, at: null });
    this.bar = make("div", { class: "layers", role: "group", "aria-label": "Which states the cells are" });
    host.before(this.bar);
    host.setAttribute("role", "grid");
    host.addEventListener("keydown", (event) => this.walk(event));
  }

  build(world) {
    if (this.cells.length === world.rows * world.columns && this.columns === world.columns) return;
    this.columns = world.columns;
    this.cells = [];
    const rows = [];
    for (let row = 0; row < world.rows; row++) {
      const line = make("div", { role: "row", class: "row", "aria-label": `row ${row}` });
      for (let column = 0; column < world.columns; column++) line.append(this.cell(world, row * world.columns + column));
      rows.push(line);
    }
    this.host.style.setProperty("--columns", world.columns);
    this.host.style.setProperty("--rows", world.rows);
    this.host.replaceChildren(...rows);
    this.cells[0].node.tabIndex = 0;
    for (const [one, other] of world.walls) {
      const at = Math.min(...[one, other].map(([r, c]) => r * world.columns + c));
      this.cells[at].node.classList.add(one[0] === other[0] ? "wall-right" : "wall-below");
    }
    this.choosers(world);
  }

  cell(world, at) {
    const spots = world.moves.flatMap(([down, right], a) => (down || right ? [] : [a]));
    const arrows = world.moves.map(([down, right], a) => {
      if (!down && !right) return make("text", { class: `arrow spot spot${spots.indexOf(a) % 2}` }, world.actions[a]);
      const angle = (Math.atan2(down, right) * 180) / Math.PI;
      return make("path", { transform: `rotate(${angle})`, class: "arrow" });
    });
    const dot = make("circle", { r: 2.2, class: "all" });
    const svg = make("svg", { viewBox: "-16 -16 32 32", "aria-hidden": "true" }, ...arrows, dot);
    const [value, mark, agents] = ["value", "what", "agents"].map((name) => make("span", { class: name, "aria-hidden": "true" }));
    const said = make("span", { class: "unseen" }); // what a screen reader says of it
    const node = make("button", { type: "button", role: "gridcell", class: "cell", tabindex: -1 }, agents, mark, svg, value, said);
    node.addEventListener("pointerenter", () => this.look(at));
    node.addEventListener("focus", () => this.look(at));
    node.addEventListener("click", () => this.picked(at));
    this.cells.push({ node, svg, arrows, dot, value, mark, agents, said });
    return node;
  }

  look(cell) {
    this.at = cell;
    this.looked(this.state(cell));
  }

  // The layers: a cell has one state for each combination of their values, the last one fastest.
  choosers(world) {
    this.layer = world.layers.map(() => 0);
    if (this.layer.length > 1) this.layer[1] = 1; // the first of each may be where an episode is over
    this.bar.hidden = !world.layers.length;
    this.selects = world.layers.map((layer, i) => {
      const select = make("select", {}, ...layer.choices.map((name, at) => make("option", { value: at }, name)));
      select.addEventListener("change", () => this.turn(this.layer.map((x, j) => (j === i ? Number(select.value) : x)), false));
      return select;
    });
    this.follow = make("button", { type: "button", "aria-pressed": "false", "data-value": "follow" }, "Follow copy 1");
    this.follow.addEventListener("click", () => this.turn(this.layer, !this.follows));
    this.note = make("span", { class: "quiet" });
    this.bar.replaceChildren(...world.layers.map((layer, i) => make("label", {}, `${layer.name} `, this.selects[i])), make("span", {}, this.follow), this.note);
  }

  turn(layer, follows) {
    Object.assign(this, { layer, follows });
    this.redraw();
    if (this.at !== null) this.looked(this.state(this.at));
  }

  state(cell) {
    return this.sizes.reduce((at, size, i) => at * size + this.layer[i], cell);
  }

  // The state of the cells shown from which most can be had: the first to learn something.
  highest() {
    const open = this.cells.map((_, at) => this.state(at)).filter((s) => !this.world.terminal[s] && !this.world.closed[s]);
    const { values } = this.world.optimal;
    return open.reduce((best, s) => (values[s] > values[best] ? s : best), open[0]);
  }

  // The cell of a state, and the values of its layers.
  place(state) {
    const layer = [];
    for (const size of [...this.sizes].reverse()) {
      layer.unshift(state % size);
      state = Math.floor(state / size);
    }
    return { cell: state, layer };
  }

  where(state) {
    const { cell, layer } = this.place(state), { layers } = this.world;
    const more = layer.map((at, i) => `, ${layers[i].name} ${layers[i].choices[at]}`);
    return `row ${Math.floor(cell / this.columns)}, column ${cell % this.columns}${more.join("")}`;
  }

  // What lies in each cell: what can be moved, what cannot, and what the layers say.
  names(world) {
    const found = Array.from({ length: world.rows * world.columns }, () => []);
    const put = (name, [r, c]) => found[r * world.columns + c].push(name);
    for (const [name, cells] of Object.entries(world.marks)) cells.forEach((cell) => put(name, cell));
    for (const [name, cell] of Object.entries(world.cells)) put(name, cell);
    world.layers.forEach((layer, i) => layer.cells[this.layer[i]] && put(layer.name, layer.cells[this.layer[i]]));
    return found.map((each) => each.join(", "));
  }

  // shown: {values, best}; text(state) replaces the number; size scales the color; agents are the states of the copies
  draw(world, shown, { size = world.scale, text = null, agents = [] } = {}) {
    Object.assign(this, { world, drawn: [world, shown, { size, text, agents }], sizes: world.layers.map((layer) => layer.choices.length) });
    this.build(world);
    if (this.follows && agents.length) this.layer = this.place(agents[0]).layer;
    const counts = new Map(), names = this.names(world);
    for (const state of agents) counts.set(state, (counts.get(state) ?? 0) + 1);
    this.cells.forEach((cell, at) => this.fill(cell, this.state(at), names[at], { world, shown, size, text, copies: counts.get(this.state(at)) ?? 0 }));
    if (world.layers.length) this.tell(agents);
  }

  redraw() {
    if (this.drawn) this.draw(...this.drawn);
  }

  tell(agents) {
    const here = agents.filter((state) => this.place(state).layer.join() === this.layer.join()).length;
    this.selects.forEach((select, i) => (select.value = this.layer[i]));
    this.follow.hidden = !agents.length;
    choose(this.follow.parentNode, "aria-pressed", this.follows ? "follow" : "");
    const shut = this.cells.every((_, at) => this.world.closed[this.state(at)] || this.world.terminal[this.state(at)]);
    this.note.textContent = shut ? "No episode goes on here: choose other values." : agents.length ? `${here} of ${agents.length} copies are here` : "";
  }

  fill(cell, state, name, { world, shown, size, text, copies }) {
    const over = world.terminal[state], closed = world.closed[state], value = over ? world.worth[state] : shown.values[state];
    paint(cell.node, closed || (text && over) ? 0 : value / size);
    cell.node.classList.toggle("over", over);
    cell.node.classList.toggle("closed", closed);
    cell.node.classList.toggle("named", Boolean(name));
    cell.mark.textContent = name;
    const printed = closed ? "" : over ? `${value > 0 ? "+" : ""}${number(value)}` : text ? text(state) : fixed(value);
    if (cell.value.textContent !== printed) cell.value.textContent = printed;
    const best = shown.best ? shown.best[state] : [], all = best.length > 1 && best.every(Boolean);
    cell.svg.classList.toggle("off", over || closed || !shown.best);
    cell.svg.classList.toggle("tied", best.filter(Boolean).length > 1);
    const shape = best.filter(Boolean).length === 1 ? ALONE : TIED;
    cell.arrows.forEach((arrow, a) => {
      arrow.classList.toggle("off", all || !best[a]);
      if (arrow.localName === "path" && arrow.getAttribute("d") !== shape) arrow.setAttribute("d", shape);
    });
    cell.dot.classList.toggle("off", !all);
    cell.agents.textContent = "●".repeat(Math.min(copies, 4));
    const done = over || closed || !shown.best ? "" : all ? ", all actions equal" : `, ${world.actions.filter((_, a) => best[a]).join(" or ")}`;
    const spoken = `${this.where(state)}${name ? `, ${name}` : ""}: ${closed ? "no episode comes here" : printed}${done}${copies ? `, ${copies} here` : ""}`;
    if (cell.said.textContent !== spoken) cell.said.textContent = spoken;
  }

  // Ring the cell that is explained, and the cells from which its value comes, each with its part: {cell: text}.
  explain(state, sources) {
    const here = this.place(state).cell;
    this.cells.forEach((cell, at) => {
      cell.node.classList.toggle("explained", at === here);
      cell.node.classList.toggle("source", at !== here && at in sources);
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
