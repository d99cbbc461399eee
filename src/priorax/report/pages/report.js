"use strict";
// Learning curves from the data in the page. Text from files is inserted as text, never as markup.

const tasks = JSON.parse(document.getElementById("data").textContent);
const SVG = document.getElementById("ink").namespaceURI;
const COLORS = 8, DASHES = ["", "7 4", "2 3"];
const WINDOWS = [1, 5, 10, 25, 50, 100, 500];
const EDGE = { left: 52, right: 22, top: 8, bottom: 40 };
const smooth = document.getElementById("smooth");
const redraws = [];

function make(name, attributes = {}, parent = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

function element(name, text = "", kind = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (kind) node.className = kind;
  return node;
}

function color(place) { return `var(--c${place % COLORS})`; }
function dashes(place) { return DASHES[Math.floor(place / COLORS) % DASHES.length]; }

function number(value) {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function short(value) {
  // For axes: 1500000 is 1.5M.
  for (const [least, unit, sign] of [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]]) {
    if (Math.abs(value) >= least) return `${Number((value / unit).toPrecision(3))}${sign}`;
  }
  return String(Number(value.toPrecision(6)));
}

function span() {
  // Number of episodes averaged per point.
  return Number(smooth.value);
}

function trailing(values, points) {
  // Moving average over the last points; missing ones are skipped.
  if (points <= 1) return values;
  let sum = 0, count = 0;
  return values.map((value, i) => {
    if (value !== null) { sum += value; count += 1; }
    const gone = i >= points ? values[i - points] : null;
    if (gone !== null) { sum -= gone; count -= 1; }
    return count ? sum / count : null;
  });
}

function summarize(curve, episodes) {
  // Mean, minimum and maximum over seeds at each point.
  const lines = curve.runs.map((run) => trailing(run.values, Math.max(1, Math.round(episodes / curve.each))));
  const length = Math.max(0, ...lines.map((line) => line.length));
  const points = [];
  for (let i = 0; i < length; i += 1) {
    const here = lines.map((line) => line[i]).filter((value) => value !== null && value !== undefined);
    if (!here.length) continue;
    const mean = here.reduce((sum, value) => sum + value, 0) / here.length;
    const x = Math.min((i + 1) * curve.width, curve.last);
    points.push({ x, mean, low: Math.min(...here), high: Math.max(...here), seeds: here.length });
  }
  return points;
}

function ticks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step);
  return found;
}

function nearest(points, x) {
  // The point at x, or none if the curve ends well before.
  let best = null;
  for (const point of points) if (!best || Math.abs(point.x - x) < Math.abs(best.x - x)) best = point;
  return best;
}

function drawChart(chart, labels, hidden, figure) {
  const svg = make("svg", { tabindex: 0, role: "img" });
  const tip = element("div", "", "tip");
  tip.hidden = true;
  tip.setAttribute("role", "status");
  figure.append(element("figcaption", chart.title), svg, tip);
  let lines = [], xs = [], place = null, at = -1, overlay = null;

  function redraw() {
    lines = chart.curves.map((curve, i) => (hidden.has(i) ? [] : summarize(curve, chart.smooth ? span() : 1)));
    const all = lines.flat();
    svg.replaceChildren();
    tip.hidden = true;
    at = -1;
    const width = Math.max(figure.clientWidth, 200), height = Math.round(Math.min(Math.max(width * 0.55, 210), 320));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    if (!all.length) {
      make("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, svg).textContent = "no data yet";
      return;
    }
    let low = Math.min(...all.map((p) => p.low)), high = Math.max(...all.map((p) => p.high));
    if (chart.y === "average regret") [low, high] = [Math.min(low, 0), Math.max(high, 1)];
    if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
    const pad = 0.03 * (high - low);
    [low, high] = [low - pad, high + pad];
    const last = Math.max(...all.map((p) => p.x));
    const first = Math.min(...all.map((p) => p.x), last > 1 ? Infinity : 0);
    place = {
      x: (x) => EDGE.left + ((x - first) / (last - first || 1)) * (width - EDGE.left - EDGE.right),
      y: (y) => height - EDGE.bottom - ((y - low) / (high - low)) * (height - EDGE.top - EDGE.bottom),
      width, height,
    };
    drawAxes(svg, chart, place, { low, high, first, last });
    lines.forEach((points, i) => drawLine(svg, points, place, i));
    if (chart.learned) {
      const spot = { class: "halo", x: width - EDGE.right - 4, y: place.y(chart.learned) + 15, "text-anchor": "end" };
      make("text", spot, svg).textContent = `below ${chart.learned}: learned`;
    }
    overlay = make("g", {}, svg);
    xs = [...new Set(all.map((p) => p.x))].sort((a, b) => a - b);
    const ends = lines.map((points, i) => points.length && `${labels[i].label} ends at ${number(points.at(-1).mean)}`);
    svg.setAttribute("aria-label", `${chart.title}. ${ends.filter(Boolean).join("; ")}.`);
  }

  function show(index) {
    if (!xs.length) return;
    at = Math.min(Math.max(index, 0), xs.length - 1);
    const x = xs[at], spot = place.x(x);
    overlay.replaceChildren();
    make("line", { class: "cursor", x1: spot, x2: spot, y1: EDGE.top, y2: place.height - EDGE.bottom }, overlay);
    tip.replaceChildren(element("b", `${chart.x} ${number(x)}`));
    lines.forEach((points, i) => {
      const point = nearest(points, x);
      if (!point || Math.abs(point.x - x) > chart.curves[i].width) return;
      const [cx, cy, style] = [place.x(point.x), place.y(point.mean), `fill: ${color(i)}`];
      make("circle", { class: "dot", cx, cy, r: 4, style }, overlay);
      const row = element("div");
      const name = element("span", `${labels[i].label}: `);
      name.style.color = color(i);
      const range = `${number(point.low)} to ${number(point.high)}, ${point.seeds} seeds`;
      row.append(name, element("b", number(point.mean)), point.seeds > 1 ? ` (${range})` : " (1 seed)");
      tip.append(row);
    });
    tip.hidden = false;
    const right = spot > place.width / 2;
    tip.style.left = right ? "auto" : `${spot + 12}px`;
    tip.style.right = right ? `${place.width - spot + 12}px` : "auto";
  }

  function hide() {
    tip.hidden = true;
    at = -1;
    if (overlay) overlay.replaceChildren();
  }

  function point(event) {
    if (!xs.length) return;
    const box = svg.getBoundingClientRect();
    const where = ((event.clientX - box.left) / box.width) * place.width;
    let best = 0;
    xs.forEach((x, i) => { if (Math.abs(place.x(x) - where) < Math.abs(place.x(xs[best]) - where)) best = i; });
    show(best);
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const jump = Math.max(1, Math.round(xs.length / 40));
    const next = { ArrowLeft: at - jump, ArrowRight: at + jump, Home: 0, End: xs.length - 1 }[event.key];
    if (event.key === "Escape") hide();
    if (next === undefined) return;
    event.preventDefault();
    show(next);
  });
  redraws.push(redraw);
  return redraw;
}

function drawAxes(svg, chart, place, { low, high, first, last }) {
  for (const value of ticks(low, high, 5)) {
    const y = place.y(value);
    make("line", { class: "grid", x1: EDGE.left, x2: place.width - EDGE.right, y1: y, y2: y }, svg);
    make("text", { x: EDGE.left - 6, y: y + 4, "text-anchor": "end" }, svg).textContent = short(value);
  }
  const whole = ticks(first, last, Math.max(2, Math.floor(place.width / 70))).filter((x) => Number.isInteger(x));
  for (const value of whole) {
    const label = make("text", { x: place.x(value), y: place.height - EDGE.bottom + 17, "text-anchor": "middle" }, svg);
    label.textContent = short(value);
  }
  const middle = (EDGE.left + place.width - EDGE.right) / 2;
  make("text", { x: middle, y: place.height - 5, "text-anchor": "middle" }, svg).textContent = chart.x;
  if (chart.learned) {
    const y = place.y(chart.learned);
    make("line", { class: "limit", x1: EDGE.left, x2: place.width - EDGE.right, y1: y, y2: y }, svg);
  }
}

function drawLine(svg, points, place, i) {
  if (!points.length) return;
  const path = (rows, side) => rows.map((p) => `${place.x(p.x).toFixed(1)},${place.y(p[side]).toFixed(1)}`).join("L");
  if (points.some((p) => p.seeds > 1)) {
    const band = `M${path(points, "high")}L${path([...points].reverse(), "low")}Z`;
    make("path", { class: "band", d: band, style: `fill: ${color(i)}` }, svg);
  }
  const style = `stroke: ${color(i)}`;
  make("path", { class: "mean", d: `M${path(points, "mean")}`, style, "stroke-dasharray": dashes(i) }, svg);
  if (points.length === 1) {
    make("circle", { cx: place.x(points[0].x), cy: place.y(points[0].mean), r: 3, style: `fill: ${color(i)}` }, svg);
  }
}

function drawTask(task) {
  const section = element("section"), hidden = new Set(), legend = element("div", "", "legend"), mine = [];
  section.append(element("h3", task.task), legend);
  task.groups.forEach((group, i) => {
    const button = element("button"), sample = make("svg", { width: 22, height: 10, "aria-hidden": "true" }, button);
    make("line", { x1: 0, x2: 22, y1: 5, y2: 5, style: `stroke: ${color(i)}; stroke-width: 3`,
      "stroke-dasharray": dashes(i) }, sample);
    const seeds = `${group.seeds} seed${group.seeds > 1 ? "s" : ""}${group.open ? `, ${group.open} not finished` : ""}`;
    const text = element("span", `${group.label} `);
    text.append(element("small", seeds));
    button.append(text);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!hidden.delete(i)) hidden.add(i);
      button.setAttribute("aria-pressed", String(!hidden.has(i)));
      mine.forEach((redraw) => redraw());
    });
    legend.append(button);
  });
  const charts = element("div", "", "charts");
  for (const chart of task.charts) {
    const figure = element("figure");
    charts.append(figure);
    mine.push(drawChart(chart, task.groups, hidden, figure));
  }
  section.append(charts);
  if (task.note) section.append(element("p", task.note, "soft"));
  document.getElementById("tasks").append(section);
}

function longest() {
  const curves = tasks.flatMap((task) => task.charts[0].curves);
  return Math.max(1, ...curves.flatMap((curve) => curve.runs.map((run) => run.values.length * curve.each)));
}

function redrawAll() {
  document.getElementById("smoothed").textContent = `Each point is the mean of the last ${span()} episodes.`;
  redraws.forEach((redraw) => redraw());
}

for (const size of WINDOWS.filter((size) => size === 1 || size <= longest() / 4)) {
  smooth.append(new Option(size === 1 ? "1" : String(size), String(size)));
}
smooth.value = [...smooth.options].map((option) => option.value).filter((size) => size <= longest() / 40).at(-1) || "1";
smooth.addEventListener("change", redrawAll);
tasks.forEach(drawTask);

let seen = 0;
new ResizeObserver(() => {
  if (document.body.clientWidth !== seen) {
    seen = document.body.clientWidth;
    redrawAll();
  }
}).observe(document.body);
redrawAll();

let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((details) => { details.open = true; });
});
window.addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
