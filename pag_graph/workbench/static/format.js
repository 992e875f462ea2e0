// Times as the command line prints them, and colours that differ in lightness as well.

import { make } from "./dom.js";

export function duration(ns) {
  for (const [limit, unit, digits] of [[1e3, "ns", 0], [1e6, "us", 1], [1e9, "ms", 2]]) {
    if (Math.abs(ns) < limit) return `${(ns / (limit / 1e3)).toFixed(digits)} ${unit}`;
  }
  return `${(ns / 1e9).toFixed(3)} s`;
}

export const spaced = (name) => name.replaceAll("_", " ");

export const percent = (part, whole) => `${((100 * part) / Math.max(whole, 1)).toFixed(part < whole / 100 ? 1 : 0)}%`;

const PALETTE = ["#1d6fa5", "#e07a1f", "#2a9d8f", "#c1436d", "#7a5ea8", "#8a6d3b", "#5b8c2a", "#4f6d7a", "#c9a227", "#a23b3b"];

export const operatorColour = (operator) => (operator < 0 ? "#b8b8c8" : PALETTE[operator % PALETTE.length]);

const inks = new Map();

// A colour of the style sheet; it is asked once in each theme, for a question may have all styles worked out anew.
export function ink(name) {
  const root = document.documentElement;
  const key = `${root.dataset.theme} ${name}`;
  if (!inks.has(key)) inks.set(key, getComputedStyle(root).getPropertyValue(`--${name}`).trim());
  return inks.get(key);
}

export function workerName(run, place) {
  const { worker, name } = run.workers[place];
  return name ? `${name} (worker ${worker})` : `worker ${worker}`;
}

export function operatorName(run, operator) {
  const row = run.byOperator.get(operator);
  return row ? `${row.name || "operator"} (${row.address || row.operator})` : "";
}

// A colour, or the name of one of the style sheet, and what it stands for.
export function swatch(name, colour) {
  const box = make("canvas", { width: 12, height: 12, "aria-hidden": "true" });
  const paint = () => {
    const pen = box.getContext("2d");
    pen.fillStyle = colour.startsWith("#") ? colour : ink(colour);
    pen.fillRect(0, 0, 12, 12);
  };
  box.addEventListener("recolour", paint);
  paint();
  return make("span", {}, box, name);
}
