// What every page needs: asking the server, making elements, colors, numbers. All text goes through textContent.

const address = new URLSearchParams(location.search);
export const token = address.get("token") ?? "";
const key = address.get("run") ?? ""; // of a run among several
export const api = /^[0-9a-f]+$/.test(key) ? `/api/${key}/` : "/api/";
export const home = api === "/api/" ? null : `/?token=${encodeURIComponent(token)}`;

export async function ask(path, body) {
  const headers = { "X-Token": token };
  const post = { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let reply;
  try {
    reply = await fetch(`${api}${path}`, body === undefined ? { headers } : post);
  } catch {
    throw new Error("the server does not answer: was it ended?");
  }
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

export const find = (id) => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "path", "line", "circle", "text", "rect", "polyline"]);

export function make(tag, attributes = {}, ...children) {
  const node = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function say(text, wrong = false) {
  const place = find("notice");
  place.textContent = text;
  place.classList.toggle("wrong", wrong);
  place.hidden = !text;
}

// Run what may fail; a failure is shown in one line.
export async function guarded(work) {
  try {
    return await work();
  } catch (error) {
    say(error.message, true);
    return undefined;
  }
}

let missed = ""; // what was said of an answer that did not come

// The same for a look that is repeated: its next answer takes the failure back.
export async function watched(look) {
  try {
    await look();
    if (missed && find("notice").textContent === missed) say("");
    missed = "";
  } catch (error) {
    say((missed = error.message), true);
  }
}

export function number(x, digits = 3) {
  if (x === null || x === undefined) return "–";
  if (typeof x !== "number") return String(x); // of a file that was edited by hand
  const size = Math.abs(x);
  if (size < 1e12 && (Number.isInteger(x) || size >= 1000)) return Math.round(x).toLocaleString("en").replace("-", "−");
  const text = size !== 0 && (size < 10 ** -digits || size >= 1e12) ? x.toExponential(1) : Number(x.toPrecision(digits)).toString();
  return text.replaceAll("-", "−");
}

// The lowest and the highest of any number of values: as the arguments of Math.min they would not fit on the stack.
export function ends(values) {
  let low = Infinity, high = -Infinity;
  for (const x of values) [low, high] = [Math.min(low, x), Math.max(high, x)];
  return [low, high];
}

export const fixed = (x, digits = 2) => x.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");

// Blue above, orange below, paper between: every kind of color vision tells them from each other.
const LIGHT = [[158, 74, 3], [224, 148, 70], [250, 214, 168], [247, 248, 250], [190, 216, 238], [94, 153, 205], [24, 88, 156]];
const DARK = [[250, 170, 90], [190, 112, 40], [98, 66, 40], [35, 40, 48], [38, 70, 104], [50, 112, 176], [112, 182, 250]];
const scheme = matchMedia("(prefers-color-scheme: dark)");

export function diverging(t) {
  const stops = scheme.matches ? DARK : LIGHT;
  const at = ((Math.max(-1, Math.min(1, t)) + 1) / 2) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((x, i) => Math.round(x + (stops[low + 1][i] - x) * (at - low)));
}

// Color an element, and its text so that it can be read.
export function paint(node, t) {
  const [r, g, b] = diverging(t);
  const light = [r, g, b].map((x) => ((x / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  node.style.backgroundColor = `rgb(${r} ${g} ${b})`;
  node.style.color = luminance > 0.178 ? "#000000" : "#ffffff";
}

export const whenSchemeChanges = (draw) => scheme.addEventListener("change", draw);

// Space and → belong to the page, except where something is written, set or walked through by keyboard. What was
// clicked loses the focus again, so that both keys go on working; what was reached with Tab keeps it.
export function keys(actions) {
  document.addEventListener("click", (event) => event.detail && event.target.closest("button")?.blur());
  document.addEventListener("keydown", (event) => {
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, [role=tab], [role=grid]")) return;
    if (event.key === " " && event.target.closest("button, summary, a")) return;
    if (action() !== false) event.preventDefault(); // false: it is of a part that is not shown
  });
}

// One of several buttons: role=tab or aria-pressed, each with its value in data-value.
export function choices(host, attribute, names, chosen, pick) {
  const held = host.contains(document.activeElement) ? document.activeElement.dataset.value : null;
  host.replaceChildren();
  for (const [value, label] of names) {
    const tab = attribute === "aria-selected";
    const button = make("button", { type: "button", "data-value": value, role: tab ? "tab" : undefined }, label);
    button.addEventListener("click", () => pick(value));
    host.append(button);
  }
  choose(host, attribute, chosen);
  if (attribute === "aria-selected") host.onkeydown = (event) => walkTabs(host, event); // one, however often they are made
  [...host.children].find((button) => button.dataset.value === held)?.focus();
}

export function choose(host, attribute, chosen) {
  for (const button of host.children) {
    const on = button.dataset.value === chosen;
    button.setAttribute(attribute, String(on));
    if (attribute !== "aria-selected") continue;
    button.tabIndex = on ? 0 : -1;
    button.setAttribute("aria-controls", host.dataset.controls ?? button.dataset.value);
  }
}

function walkTabs(host, event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const tabs = [...host.children];
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  next.focus();
  next.click();
}
