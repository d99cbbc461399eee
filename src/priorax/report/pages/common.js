"use strict";
// Shared by the pages: light and dark colours, and canvases at device resolution.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
let printing = false;

const LIGHT = {
  paper: "#ffffff", ink: "#1d2129", soft: "#59616d", line: "#c9ced6", red: "#d03a2b", mean: "#1f5fb4",
  band: "31,95,180", gold: "#e0a100", halo: "rgba(255,255,255,0.85)", first: "#1f5fb4", second: "#8a5a00",
  visits: ["#dbe7f6", "#6d9fd9", "#0b3d91"], spread: ["#fff3e2", "#f0a04b", "#9c3d00"],
  value: ["#7b3294", "#f2f2f2", "#137a45"], never: "#ffffff",
};
const DARK = {
  paper: "#14171c", ink: "#e8eaee", soft: "#a3acb9", line: "#454d59", red: "#ff6f5a", mean: "#7fb2ff",
  band: "127,178,255", gold: "#ffd24a", halo: "rgba(10,12,16,0.85)", first: "#7fb2ff", second: "#f0b35e",
  visits: ["#1d3352", "#3f76b8", "#bfdcff"], spread: ["#2a2118", "#a3591b", "#ffc285"],
  value: ["#c58be0", "#2a2e35", "#5fd39a"], never: "#14171c",
};

function look() {
  return dark.matches && !printing ? DARK : LIGHT;
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function blend(colors, share) {
  // Interpolate between evenly spaced colours; share from 0 to 1.
  const place = Math.min(Math.max(share, 0), 1) * (colors.length - 1);
  const left = Math.min(Math.floor(place), colors.length - 2);
  const [a, b] = [rgb(colors[left]), rgb(colors[left + 1])];
  return `rgb(${a.map((part, i) => Math.round(part + (b[i] - part) * (place - left))).join(",")})`;
}

function pen(canvas, shape) {
  // Clear and resize a canvas, in CSS pixels; `shape`: height over width, or a function of the width.
  const width = canvas.clientWidth || 200;
  const height = Math.round(typeof shape === "function" ? shape(width) : width * shape);
  const times = Math.max(window.devicePixelRatio || 1, printing ? 2 : 1);
  canvas.width = Math.round(width * times);
  canvas.height = Math.round(height * times);
  const context = canvas.getContext("2d");
  context.scale(times, times);
  context.lineJoin = context.lineCap = "round";
  return [context, width, height];
}

function words(context, text, x, y, options = {}) {
  context.font = `${options.bold ? "600 " : ""}${options.size || 12}px system-ui, "DejaVu Sans", sans-serif`;
  context.fillStyle = options.color || look().soft;
  context.textAlign = options.align || "left";
  context.textBaseline = options.base || "alphabetic";
  context.fillText(text, x, y);
}

function redrawWhenLooksChange(redraw) {
  let width = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) {
      width = document.body.clientWidth;
      redraw();
    }
  }).observe(document.body);
  dark.addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { printing = true; redraw(); });
  window.addEventListener("afterprint", () => { printing = false; redraw(); });
}
