// What a language model writes: the attempts at one prompt side by side, each token coloured by what is known of it.

import { ask, choices, choose, find, fixed, guarded, make, number, paint, say, whenSchemeChanges } from "./common.js";

const WORDS = { advantage: "Advantage", ratio: "Ratio π/π_b", clipped: "Clipped", log_prob: "Log-probability" };
const ORDER = Object.keys(WORDS);
const CARDS = 8; // that are shown at once, if a group has fewer: several groups
const state = { told: null, groups: null, at: 0, colour: null };

export async function openTokens() {
  if (state.told) return;
  await play();
}

async function play() {
  busy("playing …");
  state.at = 0;
  try {
    state.told = await ask("play", {});
    if (state.told.known.includes("ratio")) state.told = await ask("learn", {});
    await group();
  } finally {
    busy("");
  }
}

async function learn() {
  busy("learning …");
  try {
    state.told = await ask("learn", {});
    await group();
  } finally {
    busy("");
  }
}

function busy(text) {
  for (const id of ["learn", "again", "back", "on"]) find(id).disabled = Boolean(text);
  if (text) find("told").textContent = text;
}

async function group() {
  const shown = Array.from({ length: Math.min(many(), state.told.groups - state.at) }, (_, i) => state.at + i);
  state.groups = await Promise.all(shown.map((at) => ask("group", { group: at })));
  const known = ORDER.filter((name) => state.told.known.includes(name));
  if (!known.includes(state.colour)) state.colour = known[0];
  choices(find("colours"), "aria-pressed", known.map((name) => [name, WORDS[name]]), state.colour, (name) => ((state.colour = name), draw()));
  find("learn").hidden = !known.includes("ratio");
  draw();
}

const many = () => Math.max(1, Math.floor(CARDS / state.told.size));

function draw() {
  const { told, groups } = state;
  if (!groups) return;
  choose(find("colours"), "aria-pressed", state.colour);
  find("told").textContent = sentence(told);
  const last = state.at + groups.length;
  find("which").textContent = last > state.at + 1 ? `prompts ${state.at + 1} to ${last} of ${told.groups}` : `prompt ${last} of ${told.groups}`;
  const values = groups.flatMap((group) => group.attempts.flatMap((attempt) => own(attempt, state.colour).map(place)));
  const size = state.colour === "ratio" ? Math.log(2) : Math.max(1e-9, ...values.map(Math.abs));
  scale(size);
  find("read").hidden = !groups.some((group) => group.attempts.some((attempt) => attempt.read.includes(true)));
  find("attempts").classList.toggle("single", told.size === 1);
  find("attempts").replaceChildren(...groups.map((group) => {
    const cards = group.attempts.map((attempt, i) => card(attempt, i, size));
    return make("div", {}, make("div", { class: "prompt" }, group.prompt.trim()), make("div", { class: "cards" }, ...cards));
  }));
}

// What is known of the tokens that the model wrote itself.
const own = (attempt, name) => attempt[name].filter((_, t) => !attempt.read[t]);

// Where a value lies between orange and blue: a ratio by its logarithm.
const place = (x) => (state.colour === "ratio" ? Math.log(x) : state.colour === "clipped" ? (x ? -1 : 0) : x);

function sentence(told) {
  const parts = [`Iteration ${number(told.iteration + 1)} played from the newest checkpoint, in memory: nothing of it is saved.`];
  if (told.passes) parts.push(`Learned ${told.passes} × at rate ${number(told.lr)}${told.over ? " (its schedules as at their start)" : ""}: KL to the policy that played ${number(told.kl ?? null)}${told.clip_fraction === undefined ? "" : `, ${number(100 * told.clip_fraction, 2)} % of tokens clipped`}.`);
  else if (told.known.includes("ratio")) parts.push("Nothing learned yet, so every ratio is 1.");
  else parts.push("This algorithm has no ratio: log-probabilities only.");
  return parts.join(" ");
}

function scale(size) {
  const texts = { ratio: ["½ or less", "2 or more"], clipped: ["clipped", ""], log_prob: [fixed(-size), "0"] };
  const [low, high] = texts[state.colour] ?? [fixed(-size), `+${fixed(size)}`];
  find("low").textContent = low;
  find("high").textContent = high;
  const half = ["log_prob", "clipped"].includes(state.colour);
  find("ramp").replaceChildren(...Array.from({ length: 24 }, (_, i) => {
    const node = make("b");
    paint(node, half ? i / 23 - 1 : (i / 23) * 2 - 1);
    return node;
  }));
}

function card(attempt, i, size) {
  const marks = [];
  if (attempt.score !== null) marks.push(make("span", { class: attempt.score > 0 ? "good" : "bad" }, `score ${number(attempt.score)}`));
  if (attempt.advantage) marks.push(make("span", {}, `advantage ${fixed(mean(own(attempt, "advantage")))}`));
  const tokens = attempt.text.map((text, t) => {
    const node = make("span", { class: "token" }, attempt.end[t] ? "end" : text);
    node.classList.toggle("end", attempt.end[t]);
    node.classList.toggle("read", attempt.read[t]);
    if (attempt.read[t]) return node;
    node.classList.toggle("clipped", Boolean(attempt.clipped?.[t]) && state.colour !== "log_prob");
    paint(node, place(attempt[state.colour][t]) / size);
    node.addEventListener("pointerenter", () => tip(node, attempt, t));
    node.addEventListener("pointerleave", () => (find("token").hidden = true));
    return node;
  });
  return make("article", { class: "card" }, make("header", {}, make("span", {}, state.told.size > 1 ? `attempt ${i + 1}` : ""), ...marks), make("div", { class: "text" }, ...tokens));
}

const mean = (xs) => xs.reduce((a, b) => a + b, 0) / Math.max(1, xs.length);

function tip(node, attempt, t) {
  const lines = [`token ${JSON.stringify(attempt.end[t] ? "end" : attempt.text[t])}`, `log-probability ${fixed(attempt.log_prob[t], 3)}`];
  if (attempt.advantage) lines.push(`advantage ${fixed(attempt.advantage[t], 3)}`);
  if (attempt.ratio) lines.push(`ratio ${fixed(attempt.ratio[t], 4)}${attempt.clipped?.[t] ? ", clipped" : ""}`);
  const box = node.getBoundingClientRect(), place = find("token");
  place.textContent = lines.join("\n");
  place.hidden = false;
  place.style.left = `${Math.min(box.left, innerWidth - place.offsetWidth - 8)}px`;
  place.style.top = `${box.bottom + place.offsetHeight + 8 > innerHeight ? box.top - place.offsetHeight - 4 : box.bottom + 4}px`;
}

async function walk(step) {
  const next = state.at + step * many();
  state.at = next < 0 ? Math.floor((state.told.groups - 1) / many()) * many() : next < state.told.groups ? next : 0;
  await group();
}

const click = (id, work) => find(id).addEventListener("click", () => (say(""), guarded(work)));
click("learn", learn);
click("again", play);
click("back", () => walk(-1));
click("on", () => walk(1));
whenSchemeChanges(draw);

// What the run itself wrote down.

let kept = null;

export async function openCompletions() {
  await show(kept ? kept.iteration : undefined);
}

async function show(iteration) {
  kept = await ask(`completions${iteration === undefined ? "" : `?iteration=${iteration}`}`);
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
  if (record.advantage !== null && record.advantage !== undefined) marks.push(make("span", {}, `advantage ${fixed(record.advantage)}`));
  return make("article", { class: "card" }, make("header", {}, ...marks), make("div", { class: "text" }, record.completion || "(nothing)"));
}

find("iteration").addEventListener("input", () => guarded(() => show(kept.iterations[Number(find("iteration").value)])));
