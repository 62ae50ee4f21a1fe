// A replay: one episode of the newest checkpoint, picture by picture, with what it earned.

import { api, ask, choices, choose, find, guarded, keys, make, number, token } from "./common.js";
import { Chart } from "./chart.js";

const SECONDS = 12; // that an episode takes, within what the eye can follow
const state = { luck: "greedy", answer: null, at: 0, playing: false, turn: 0, loading: 0 };
let reward = null, earned = null, valued = null, observed = null;

export async function openReplay() {
  reward ??= new Chart(find("earned"), { title: "reward", xName: "step", height: 130 });
  earned ??= new Chart(find("earned"), { title: "return so far", xName: "step", height: 150 });
  valued ??= new Chart(find("earned"), { title: "value: what is expected from here on, discounted", xName: "step", height: 150 });
  choices(find("luck"), "aria-pressed", [["greedy", "Greedy"], ["sampled", "Sampled"]], state.luck, (luck) => ((state.luck = luck), load()));
  if (!state.answer) await load();
}

export function closeReplay() {
  state.turn += 1;
  state.playing = false;
  find("play").textContent = "Play";
}

async function load() {
  closeReplay();
  choose(find("luck"), "aria-pressed", state.luck);
  find("said").textContent = "playing …";
  const mine = ++state.loading;
  const episode = Math.max(0, Math.floor(Number(find("episode").value) || 0));
  const answer = await guarded(() => ask("replay", { greedy: state.luck === "greedy", episode }));
  if (mine !== state.loading) return;
  if (!answer) {
    find("said").textContent = "";
    return;
  }
  state.answer = answer;
  state.total = [0];
  answer.reward.forEach((r) => state.total.push(state.total.at(-1) + r));
  const whose = answer.agents > 1 ? `, the first of ${answer.agents} agents` : ""; // the score is the mean over all
  find("said").textContent = `after iteration ${number(answer.iteration)}${whose}${answer.reason ? `; ${answer.reason}${answer.pictures ? "; the picture is what the policy sees" : ""}` : ""}`;
  find("scrub").max = answer.reward.length - 1;
  find("picture").hidden = !answer.pictures;
  find("observed").hidden = answer.pictures || !answer.observation;
  show(0);
}

function show(at) {
  const { answer, total } = state;
  state.at = at;
  find("scrub").value = at;
  find("at").textContent = `${at} / ${answer.reward.length - 1}`;
  if (answer.pictures) find("picture").src = `${api}frame?name=${encodeURIComponent(answer.name)}&at=${at}&token=${token}`;
  else if (answer.observation) observations();
  const over = (ys) => ys.map((y, t) => [t, y]);
  reward.set([{ name: "", points: over(answer.reward).filter(([t]) => answer.action[t] !== null) }], [at]);
  earned.set([{ name: "", points: over(total.slice(0, answer.reward.length)) }], [at]);
  valued.set([{ name: "", points: over(answer.value), style: 1 }], [at]);
  valued.node.hidden = answer.value.every((v) => v === null);
  const rows = [["action", action(answer.action[at])], ["reward", number(answer.reward[at])], ["return so far", number(total[at])], ["value", number(answer.value[at])]];
  find("facts").replaceChildren(...figures(rows));
  const seen = answer.observation?.[at] ?? [];
  find("numbered").replaceChildren(...figures(seen.map((x, i) => [component(i), number(x)])));
  find("picture").alt = `Step ${at}: ${rows.map(([name, x]) => `${name} ${x}`).join(", ")}`;
}

const figures = (rows) => rows.map(([name, x]) => make("div", {}, make("dt", {}, name), make("dd", {}, x)));
const component = (i) => state.answer.names.observation[i] ?? `observation ${i}`;

// A choice with its name, or each number of a continuous action with its own.
function action(a) {
  const names = state.answer.names.action;
  if (a === null) return "end";
  if (Array.isArray(a)) return a.map((x, i) => `${names[i] ? `${names[i]} ` : ""}${number(x)}`).join(", ");
  return names[a] ? `${names[a]} (${number(a)})` : number(a);
}

function observations() {
  const seen = state.answer.observation, width = seen[0].length;
  observed ??= Array.from({ length: Math.min(width, 8) }, (_, i) => new Chart(find("observed"), { title: component(i), xName: "step", height: 84 }));
  observed.forEach((chart, i) => chart.set([{ name: "", points: seen.map((row, t) => [t, row[i]]) }], [state.at]));
}

async function play() {
  const mine = ++state.turn;
  state.playing = true;
  find("play").textContent = "Pause";
  const last = state.answer.reward.length - 1;
  if (state.at >= last) show(0);
  const pace = Math.min(30, Math.max(2, last / SECONDS)); // steps per second
  let before = performance.now(), owed = 0;
  while (state.playing && state.at < last) {
    await new Promise((done) => requestAnimationFrame(done));
    if (mine !== state.turn) return; // stopped meanwhile, and perhaps begun again
    const now = performance.now();
    owed += ((now - before) / 1000) * pace;
    before = now;
    if (owed < 1 || (state.answer.pictures && !find("picture").complete)) continue;
    show(Math.min(last, state.at + Math.floor(owed)));
    owed %= 1;
  }
  closeReplay();
}

function step() {
  closeReplay();
  if (state.answer) show(Math.min(state.answer.reward.length - 1, state.at + 1));
}

const toggle = () => (find("replay").hidden || !state.answer ? false : state.playing ? closeReplay() : play());
find("play").addEventListener("click", toggle);
find("next").addEventListener("click", step);
find("scrub").addEventListener("input", () => (closeReplay(), show(Number(find("scrub").value))));
find("episode").addEventListener("change", load);
keys({ " ": toggle, ArrowRight: () => (find("replay").hidden ? false : step()) });
