// The figure beside the map: how the value of one state comes about, action by action, as an equation with its numbers.

import { fixed, make, number, paint } from "./common.js";

const NEXT = { q_learning: "max Q(s′, ·)", sarsa: "Q(s′, a′)", expected_sarsa: "mean of Q(s′, ·) under π" };

// What the model says: a table of outcomes, and the update below it.
export function sweep(answer, { world, value, where }) {
  const largest = Math.max(...answer.backups.map((one) => one.sum));
  const chosen = answer.backups.map((one, a) => (answer.policy ? answer.best[a] : one.sum >= largest - 1e-9 * Math.max(1, Math.abs(largest))));
  const head = ["action", "chance", "reward", "γ · V(s′)", "sum"].map((name) => make("th", { scope: "col" }, name));
  const bodies = answer.backups.map((one, a) => make("tbody", { class: chosen[a] ? "chosen" : "" }, ...action(one, a)));
  function action(one, a) {
    const span = one.outcomes.length;
    return one.outcomes.map((way, i) => {
      const row = [chance(way), make("td", {}, number(way.reward)), future(way, answer.gamma, world, where)];
      if (i === 0) {
        row.unshift(make("th", { scope: "row", rowspan: span }, world.actions[a]));
        row.push(make("td", { rowspan: span, class: "sum" }, number(one.sum), ...(chosen[a] ? [make("b", {}, answer.policy ? " π" : " max")] : [])));
      }
      return make("tr", {}, ...row);
    });
  }
  const table = make("table", { class: "backup" }, make("caption", {}, "Each outcome adds chance · (reward + γ · V(s′))"), make("thead", {}, make("tr", {}, ...head)), ...bodies);
  return [equation(answer, value, chosen), table];
}

function chance(way) {
  const bar = make("i", { class: "chance", "aria-hidden": "true" });
  bar.style.width = `${Math.round(36 * way.probability)}px`;
  return make("td", {}, bar, number(way.probability));
}

function future(way, gamma, world, where) {
  if (way.over) return make("td", {}, "0, the end");
  const chip = make("span", { class: "chip", title: where(way.state) }, number(way.value));
  paint(chip, way.value / world.scale);
  return make("td", {}, `${number(gamma)} · `, chip);
}

function equation(answer, value, chosen) {
  const sums = answer.backups.map((one) => number(one.sum)), at = chosen.indexOf(true);
  const now = answer.backups[at].sum;
  const right = answer.policy ? `Q(s, π(s))` : `max(${sums.join(", ")})`;
  const was = Math.abs(now - value) < 1e-9 ? ", as it is already" : `, now ${number(value)}`;
  return make("p", { class: "equation" }, "V(s) ← ", right, " = ", make("b", {}, number(now)), was);
}

// What was tried last: one step of one entry of the table.
export function trial(answer, { world, algo }) {
  const head = ["action", "Q(s, a)"].map((name) => make("th", { scope: "col" }, name));
  const rows = answer.q.map((q, a) => {
    const chip = make("span", { class: "chip" }, fixed(q, 3));
    paint(chip, q / world.scale);
    return make("tr", { class: answer.best[a] ? "chosen" : "" }, make("th", { scope: "row" }, world.actions[a]), make("td", {}, chip, ...(answer.best[a] ? [make("b", {}, " max")] : [])));
  });
  const table = make("table", { class: "backup" }, make("caption", {}, "What each action is thought to be worth"), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  return [...update(answer, world, algo), table];
}

function update(answer, world, algo) {
  const last = answer.update;
  if (!last) return [make("p", { class: "equation" }, "Not tried yet: nothing was learned here.")];
  const name = `Q(s, ${world.actions[last.action]})`, error = last.target - last.before;
  const step = Math.abs(error) > 1e-9 ? (last.now - last.before) / error : answer.lr; // the rate as it was then
  const future = last.over ? "" : ` + γ · ${NEXT[algo] ?? "next"}`;
  const parts = last.copies > 1 ? [`the mean over ${last.copies} copies that acted here`] : [`${number(last.reward)}${last.over ? "" : ` + ${number(answer.gamma)} · ${number(answer.gamma ? (last.target - last.reward) / answer.gamma : 0)}`}`];
  return [
    make("p", { class: "equation" }, `target = r${future} = ${last.over && last.copies === 1 ? "" : `${parts[0]} = `}`, make("b", {}, number(last.target))),
    make("p", { class: "equation" }, `${name} ← Q + α · (target − Q) = ${number(last.before)} + ${number(step)} · (${number(last.target)} − ${number(last.before)}) = `, make("b", {}, number(last.now))),
  ];
}
