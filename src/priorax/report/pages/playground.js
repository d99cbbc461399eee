// The page: draggable points, sliders and the plot.

const by = (id) => document.getElementById(id);
const RANGE = { x: [-3, 3], y: [-3, 3] };
const XS = Array.from({ length: 241 }, (_, i) => RANGE.x[0] + (i * (RANGE.x[1] - RANGE.x[0])) / 240);
const SETS = {
  "zeros for x < 0": Array.from({ length: 9 }, (_, i) => [-2.6 + 0.3 * i, 0]),
  "two islands": [[-2.2, 0.9], [-1.9, 1.2], [-1.6, 0.8], [1.2, -0.8], [1.5, -1.1], [1.8, -0.5]],
  "a wave": Array.from({ length: 12 }, (_, i) => [-2.4 + 0.36 * i, 1.2 * Math.sin(1.9 * (-2.4 + 0.36 * i))]),
  "one point": [[0, 1]],
  nothing: [],
};
const state = {
  points: [], chosen: -1, next: 1, scale: 1, members: 20, noise: 0.1, seed: 1, bare: false, exact: false,
};
let shown = null;
let frame = null; // where the plot is on the canvas

function load(name) {
  state.points = SETS[name].map(([x, y]) => ({ x, y, id: state.next++ }));
  state.chosen = -1;
}

const clamp = (v, [low, high]) => Math.min(Math.max(v, low), high);
const toX = (x) => frame.left + ((x - RANGE.x[0]) / (RANGE.x[1] - RANGE.x[0])) * frame.width;
const toY = (y) => frame.top + ((RANGE.y[1] - y) / (RANGE.y[1] - RANGE.y[0])) * frame.height;

function where(event) {
  const box = by("plot").getBoundingClientRect();
  const [left, top] = [event.clientX - box.left, event.clientY - box.top];
  const x = RANGE.x[0] + ((left - frame.left) / frame.width) * (RANGE.x[1] - RANGE.x[0]);
  const y = RANGE.y[1] - ((top - frame.top) / frame.height) * (RANGE.y[1] - RANGE.y[0]);
  let near = -1;
  let least = event.pointerType === "touch" ? 26 : 13;
  state.points.forEach((point, i) => {
    const far = Math.hypot(toX(point.x) - left, toY(point.y) - top);
    if (far < least) [near, least] = [i, far];
  });
  return { x: clamp(x, RANGE.x), y: clamp(y, RANGE.y), near };
}

function line(context, ys, color, width, dash = []) {
  context.beginPath();
  XS.forEach((x, i) => context.lineTo(toX(x), toY(ys[i])));
  context.strokeStyle = color;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.stroke();
  context.setLineDash([]);
}

function band(context, times, alpha) {
  context.beginPath();
  XS.forEach((x, i) => context.lineTo(toX(x), toY(shown.mean[i] + times * shown.std[i])));
  for (let i = XS.length - 1; i >= 0; i -= 1) context.lineTo(toX(XS[i]), toY(shown.mean[i] - times * shown.std[i]));
  context.closePath();
  context.fillStyle = `rgba(${look().band},${alpha})`;
  context.fill();
}

function axes(context, height) {
  context.strokeStyle = look().line;
  context.lineWidth = 1;
  for (let tick = -3; tick <= 3; tick += 1) {
    const name = `${tick}`.replace("-", "−");
    words(context, name, toX(tick), height - 20, { align: "center" });
    words(context, name, frame.left - 6, toY(tick) + 4, { align: "right" });
  }
  context.beginPath();
  context.moveTo(frame.left, toY(0));
  context.lineTo(frame.left + frame.width, toY(0));
  context.stroke();
  words(context, "input x", frame.left + frame.width / 2, height - 5, { align: "center" });
  words(context, "y", 6, frame.top + 12);
}

function draw() {
  const [context, width, height] = pen(by("plot"), (w) => clamp(w * 0.48, [300, 560]));
  frame = { left: 30, top: 8, width: width - 40, height: height - 46 };
  axes(context, height);
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.width, frame.height);
  context.clip();
  band(context, 2, 0.16);
  band(context, 1, 0.24);
  const alpha = clamp(6 / shown.curves.length, [0.12, 0.6]);
  context.globalAlpha = alpha;
  shown.curves.slice(1).forEach((curve) => line(context, curve, look().soft, 1));
  context.globalAlpha = 1;
  if (!state.bare) line(context, shown.prior, look().red, 1.4, [1.5, 5]);
  line(context, shown.curves[0], look().red, 1.6);
  line(context, shown.mean, look().mean, 3);
  if (state.exact) {
    for (const times of [-2, 0, 2]) {
      line(context, shown.exactMean.map((m, i) => m + times * shown.exactStd[i]), look().ink, 1.5, [7, 5]);
    }
  }
  context.restore();
  state.points.forEach((point, i) => {
    context.beginPath();
    context.arc(toX(point.x), toY(point.y), i === state.chosen ? 8 : 6, 0, 2 * Math.PI);
    context.fillStyle = i === state.chosen ? look().gold : look().ink;
    context.strokeStyle = look().halo;
    context.lineWidth = 2;
    context.fill();
    context.stroke();
  });
}

function verdict() {
  // Describe the uncertainty at the input farthest from data.
  const gap = (x) => Math.min(...state.points.map((point) => Math.abs(point.x - x)), Infinity);
  const far = XS.reduce((best, _, i) => (gap(XS[i]) > gap(XS[best]) ? i : best), 0);
  const numbers = `at x = ${XS[far].toFixed(1).replace("-", "−")} the spread of members is ${shown.std[far].toFixed(2)}`;
  if (state.points.length === 0) {
    if (state.bare) return "No data and no prior: every member is zero.";
    return "No data: members are equal to their priors.";
  }
  if (state.members === 1) return "A single member has no spread: raise K to see the uncertainty.";
  if (state.bare) return `Without priors, far from all data, ${numbers}: the ensemble is overconfident.`;
  return `With priors, far from all data, ${numbers}: the ensemble is uncertain there.`;
}

function update() {
  shown = ensemble(state.points, state, XS);
  for (const name of ["scale", "members", "noise"]) {
    by(name).value = state[name];
    by(`${name}Value`).textContent = name === "members" ? state[name] : state[name].toFixed(name === "noise" ? 2 : 1);
  }
  by("bare").checked = state.bare;
  by("exact").checked = state.exact;
  by("priorKey").hidden = state.bare;
  by("exactKey").hidden = !state.exact;
  by("remove").disabled = state.points.length === 0;
  by("verdict").textContent = verdict();
  const point = state.points[state.chosen];
  const which = point ? `; point ${state.chosen + 1} selected, x ${point.x.toFixed(2)}, y ${point.y.toFixed(2)}` : "";
  by("plot").setAttribute("aria-label", `Regression with ${state.points.length} data points${which}. ${verdict()}`);
  draw();
}

for (const name of Object.keys(SETS)) by("sets").append(new Option(name, name));
load("zeros for x < 0");
listen();
update();
redrawWhenLooksChange(draw);
window.playground = {
  state, update, features, normals, XS, SETS, shown: () => shown, spot: (x, y) => [toX(x), toY(y)],
  members: (many) => ensemble(state.points, { ...state, members: many }, XS),
};
