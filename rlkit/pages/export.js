// A chart as a file: SVG and PNG with their own colors, CSV with the numbers.

import { make } from "./common.js";

const PROPERTIES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "text-anchor", "font-size"];
const ROW = 18; // pixels of a row of the legend
const LETTER = 7; // pixels that a letter of it takes at most

export function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const fileName = (title, end) => `${title.replace(/[^A-Za-z0-9]+/g, "-").toLowerCase() || "chart"}.${end}`;

// The chart by itself: what a style sheet says stands in its elements.
export function standing(chart) {
  const width = chart.width, ink = getComputedStyle(document.body);
  const copy = chart.svg.cloneNode(true);
  const from = [...chart.svg.querySelectorAll("*")], to = [...copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of PROPERTIES) to[i].setAttribute(name, style.getPropertyValue(name).replaceAll("px", ""));
    to[i].removeAttribute("class");
  });
  const title = make("text", { x: 6, y: 16, fill: ink.color, "font-size": 14, "font-weight": 600 }, chart.title);
  const most = Math.floor((width - 46) / LETTER), parts = [];
  let x = 6, y = 36;
  for (const one of chart.shown.filter((each) => each.name)) {
    const name = one.name.length > most ? `…${one.name.slice(1 - most)}` : one.name; // names of runs differ at their ends
    if (x > 6 && x + 40 + name.length * LETTER > width) [x, y] = [6, y + ROW];
    const style = getComputedStyle(chart.svg.querySelector(`.series.s${one.style}`));
    parts.push(make("path", { d: `M${x} ${y - 4}H${x + 20}`, stroke: style.stroke, "stroke-width": 2, "stroke-dasharray": style.strokeDasharray }));
    parts.push(make("text", { x: x + 25, y, fill: ink.color, "font-size": 12 }, name));
    x += 40 + name.length * LETTER;
  }
  const head = y + 8, height = chart.height + head;
  parts.unshift(make("rect", { width, height, fill: ink.backgroundColor }), title);
  const body = make("g", { transform: `translate(0 ${head})` }, ...copy.childNodes);
  const svg = make("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "system-ui, sans-serif" }, ...parts, body);
  return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
}

export async function picture(chart) {
  const url = URL.createObjectURL(standing(chart));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = make("canvas", { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

// A line a point: the series, x and y as they were measured, before any smoothing. A text that a spreadsheet would compute is quoted by '.
export function table(chart) {
  const cell = (text) => `"${String(text).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
  const rows = chart.series.flatMap((one) => (one.raw ?? one.points).map(([x, y]) => `${cell(one.name || chart.title)},${x},${y ?? ""}`));
  return new Blob([[`${cell("series")},${cell(chart.xName)},${cell(chart.title)}`, ...rows, ""].join("\n")], { type: "text/csv" });
}
