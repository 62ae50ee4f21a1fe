// What a language model writes: the attempts at one prompt side by side, each token colored by what is known of it.

import { ask, choices, choose, find, guarded, keys, make, number, paint, say, whenSchemeChanges } from "./common.js";
import { SCALES, place, ramp } from "./scales.js";

const WORDS = { advantage: "Advantage", ratio: "Ratio π/π_b", clipped: "Clipped", log_prob: "Log-probability" };
const ORDER = Object.keys(WORDS);
const CARDS = 8; // that are shown at once, if a group has fewer: several groups
const LOOK = 300; // milliseconds between two looks at how far the server is
const state = { answer: null, groups: null, at: 0, color: null, begun: false, turn: 0 };

export async function openTokens() {
  if (state.begun) return;
  state.begun = true;
  try {
    await play();
  } catch (error) {
    state.begun = false;
    throw error;
  }
}

const play = () => working(async () => {
  state.answer = await ask("play", {});
  if (state.answer.known.includes("ratio")) state.answer = await ask("learn", {});
  state.at = first();
  await group();
});

const learn = () => working(async () => {
  state.answer = await ask("learn", {});
  await group();
});

// Show how far the server is until the work is done.
async function working(work) {
  const buttons = ["learn", "again", "back", "on", "telling"].map(find);
  buttons.forEach((button) => (button.disabled = true));
  find("working").hidden = false;
  find("doing").textContent = "asking the server …";
  delete find("doing").dataset.text; // the step of an earlier work, which may have the same words
  find("done").removeAttribute("value");
  let going = true;
  const timer = setInterval(() => ask("doing").then((now) => going && progress(now), () => {}), LOOK);
  try {
    await work();
  } finally {
    going = false;
    clearInterval(timer);
    find("working").hidden = true;
    buttons.forEach((button) => (button.disabled = false));
    if (state.answer) find("telling").disabled = !state.answer.informative.length;
  }
}

function progress({ doing, at, steps, seconds }) {
  if (!steps) return;
  find("done").max = steps;
  find("done").value = at + 0.5;
  const text = `Step ${at + 1} of ${steps}: ${doing}`;
  if (find("doing").dataset.text !== text) find("doing").replaceChildren(text, make("span", { "aria-hidden": "true" })); // said once
  find("doing").dataset.text = text;
  find("doing").lastElementChild.textContent = `, ${number(Math.round(seconds))} s`;
}

// The prompts that are shown together begin at a multiple of their number.
const page = (at) => at - (at % many());
const first = () => page(state.answer.informative[0] ?? 0);
const pages = () => [...new Set(state.answer.informative.map(page))];

async function group() {
  const mine = ++state.turn;
  state.at = Math.min(state.at, page(state.answer.groups - 1)); // another page may have played anew
  const shown = Array.from({ length: Math.min(many(), state.answer.groups - state.at) }, (_, i) => state.at + i);
  const groups = await Promise.all(shown.map((at) => ask("group", { group: at })));
  if (mine !== state.turn) return; // others were asked for meanwhile
  if (groups.some(({ now }) => JSON.stringify(now) !== JSON.stringify(groups[0].now))) return group(); // another page learned
  state.answer = groups[0].now;
  state.groups = groups;
  const known = ORDER.filter((name) => state.answer.known.includes(name));
  if (!known.includes(state.color)) state.color = known[0];
  choices(find("colors"), "aria-pressed", known.map((name) => [name, WORDS[name]]), state.color, (name) => ((state.color = name), draw()));
  find("learn").hidden = !known.includes("ratio");
  draw();
}

const many = () => Math.max(1, Math.floor(CARDS / state.answer.size));

function draw() {
  const { answer, groups } = state;
  if (!groups) return;
  choose(find("colors"), "aria-pressed", state.color);
  find("played").textContent = sentence(answer);
  find("which").textContent = which();
  legend();
  find("read").hidden = !groups.some((group) => group.attempts.some((attempt) => attempt.read.includes(true)));
  find("attempts").classList.toggle("single", answer.size === 1);
  find("attempts").replaceChildren(...groups.map((group) => {
    const cards = group.attempts.map((attempt, i) => card(attempt, i));
    return make("div", {}, make("div", { class: "prompt" }, group.prompt.trim()), make("div", { class: "cards" }, ...cards));
  }));
}

function which() {
  const { answer, groups, at } = state, last = at + groups.length, rank = pages().indexOf(at);
  const name = last > at + 1 ? `prompts ${at + 1} to ${last} of ${answer.groups}` : `prompt ${last} of ${answer.groups}`;
  if (rank >= 0) return `${name}, informative ${rank + 1} of ${pages().length}`;
  return `${name}, ${answer.size > 1 ? "all attempts alike" : "nothing to learn"}`;
}

// What is known of the tokens that the model wrote itself.
const own = (attempt, name) => attempt[name].filter((_, t) => !attempt.read[t]);

function sentence(answer) {
  const parts = [`Iteration ${number(answer.iteration + 1)} played from the newest checkpoint, in memory: nothing of it is saved.`];
  if (answer.passes) parts.push(`Learned ${answer.passes} × at rate ${number(answer.lr)}${answer.over ? ", as at the start of the run" : ""}: KL to the policy that played ${number(answer.kl ?? null)}${answer.clip_fraction === undefined ? "" : `, ${number(100 * answer.clip_fraction, 2)} % of tokens clipped`}.`);
  else if (answer.known.includes("ratio")) parts.push("Nothing learned yet, so every ratio is 1.");
  else parts.push("This algorithm has no ratio: log-probabilities only.");
  if (!answer.informative.length) parts.push("The attempts at each prompt were worth the same, so there is nothing to tell apart.");
  return parts.join(" ");
}

function legend() {
  const { low, high } = SCALES[state.color];
  find("low").textContent = low;
  find("high").textContent = high;
  find("ramp").replaceChildren(...ramp(state.color).map((t) => {
    const node = make("b");
    paint(node, t);
    return node;
  }));
}

function card(attempt, i) {
  const marks = [];
  if (attempt.score !== null) marks.push(make("span", { class: attempt.score > 0 ? "good" : "bad" }, `score ${number(attempt.score)}`));
  if (attempt.advantage) marks.push(make("span", {}, `advantage ${signed(mean(own(attempt, "advantage")))}`));
  const name = state.answer.size > 1 ? `attempt ${i + 1}` : "";
  const text = make("div", { class: "text", role: "group", "aria-label": `${name || "attempt"}, ${marks.map((m) => m.textContent).join(", ")}. Arrow keys go from token to token` });
  text.append(...attempt.text.map((_, t) => token(attempt, t)));
  text.querySelector(".token:not(.read)")?.setAttribute("tabindex", "0");
  text.addEventListener("keydown", (event) => walkTokens(text, event));
  return make("article", { class: "card", "aria-label": name || "attempt" }, make("header", {}, make("span", {}, name), ...marks), text);
}

function token(attempt, t) {
  const node = make("span", { class: "token" }, attempt.end[t] ? "end" : attempt.text[t]);
  node.classList.toggle("end", attempt.end[t]);
  node.classList.toggle("read", attempt.read[t]);
  if (attempt.read[t]) return node;
  const value = attempt[state.color][t];
  node.classList.toggle("clipped", Boolean(attempt.clipped?.[t]) && state.color !== "log_prob");
  paint(node, place(state.color, value));
  if (find("numbers").checked && state.color !== "clipped" && !attempt.text[t].includes("\n")) {
    node.classList.add("stacked");
    node.append(make("sub", {}, number(value, 2)));
  }
  const show = () => tip(node, attempt, t), hide = () => (find("token").hidden = true);
  for (const [name, act] of [["pointerenter", show], ["focus", show], ["pointerleave", hide], ["blur", hide]]) node.addEventListener(name, act);
  return node;
}

function walkTokens(text, event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const tokens = [...text.querySelectorAll(".token:not(.read)")], at = tokens.indexOf(document.activeElement);
  if (!step || at < 0) return;
  event.preventDefault();
  if (!tokens[at + step]) return;
  tokens[at].removeAttribute("tabindex");
  tokens[at + step].tabIndex = 0;
  tokens[at + step].focus();
}

const mean = (xs) => xs.reduce((a, b) => a + b, 0) / Math.max(1, xs.length);
const signed = (x) => `${x > 0 ? "+" : ""}${number(x)}`;

function tip(node, attempt, t) {
  const p = Math.exp(attempt.log_prob[t]);
  const lines = [`token ${JSON.stringify(attempt.end[t] ? "end" : attempt.text[t])}`, `log-probability ${number(attempt.log_prob[t])} (p = ${number(p)})`];
  if (attempt.advantage) lines.push(`advantage ${signed(attempt.advantage[t])}`);
  if (attempt.ratio) lines.push(`ratio ${number(attempt.ratio[t], 4)}${attempt.clipped?.[t] ? ", clipped" : ""}`);
  const box = node.getBoundingClientRect(), at = find("token");
  at.textContent = lines.join("\n");
  at.hidden = false;
  at.style.left = `${Math.max(8, Math.min(box.left, innerWidth - at.offsetWidth - 8))}px`;
  at.style.top = `${box.bottom + at.offsetHeight + 8 > innerHeight ? box.top - at.offsetHeight - 4 : box.bottom + 4}px`;
}

async function walk(step) {
  const next = state.at + step * many();
  state.at = next < 0 ? page(state.answer.groups - 1) : next < state.answer.groups ? next : 0;
  await group();
}

async function nextInformative() {
  const order = pages();
  state.at = order[(order.indexOf(state.at) + 1) % order.length] ?? state.at;
  await group();
}

const click = (id, work) => find(id).addEventListener("click", () => (say(""), guarded(work)));
click("learn", learn);
click("again", play);
click("back", () => walk(-1));
click("on", () => walk(1));
click("telling", nextInformative);
find("numbers").addEventListener("change", draw);
keys({ n: () => find("tokens").hidden || find("telling").disabled || find("telling").click() });
whenSchemeChanges(draw);

// What the run itself wrote down.

let kept = null, asked = 0;

export async function openCompletions() {
  await show(kept ? kept.iteration : undefined);
}

async function show(iteration) {
  const mine = ++asked;
  const answer = await ask(`completions${iteration === undefined ? "" : `?iteration=${iteration}`}`);
  if (mine !== asked) return; // the slider stands elsewhere by now
  kept = answer;
  const slider = find("iteration"), at = kept.iterations.indexOf(kept.iteration);
  slider.max = Math.max(0, kept.iterations.length - 1);
  slider.value = Math.max(0, at);
  find("iteration-value").textContent = kept.iterations.length ? number(kept.iteration) : "none yet";
  const prompts = [...new Set(kept.records.map((record) => record.prompt))];
  find("stored").replaceChildren(...prompts.flatMap((prompt) => {
    const cards = kept.records.filter((record) => record.prompt === prompt).map(written);
    return [make("div", { class: "prompt" }, prompt), make("div", { class: "cards" }, ...cards)];
  }));
}

function written(record) {
  const right = record.score > 0;
  const marks = [make("span", { class: right ? "good" : "bad" }, `score ${number(record.score)}`)];
  if (record.kind) marks.unshift(make("span", {}, record.kind));
  for (const [name, value] of Object.entries(record.rewards ?? {})) marks.push(make("span", {}, `${name} ${value === null ? "none" : number(value)}`));
  if (record.advantage !== null && record.advantage !== undefined) marks.push(make("span", {}, `advantage ${signed(record.advantage)}`));
  return make("article", { class: "card" }, make("header", {}, ...marks), make("div", { class: "text" }, record.completion || "(nothing)"));
}

find("iteration").addEventListener("input", () => guarded(() => show(kept.iterations[Number(find("iteration").value)])));
