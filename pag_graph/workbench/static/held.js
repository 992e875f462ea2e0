// How a page in one file gets its answers: they were written into it. Stands for transport.js there.

import { ServerError } from "./errors.js";

let held = null;

export async function ready() {
  const packed = Uint8Array.from(atob(document.getElementById("answers").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  held = JSON.parse(await new Response(stream).text());
}

export const home = () => held.home;
export const offers = (page) => held.pages.includes(page);
export const memory = { getItem: () => null, setItem: () => null };
export const limits = (run, whole) => whole;
export const listen = () => () => null;
export const address = named;
export const definitionOf = () => null;

// Names of what a question is about, in their order, as the file was written with them.
function named(path, query) {
  const parts = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `${path}?${parts.map(([name, value]) => `${name}=${value}`).sort().join("&")}`;
}

function found(path, query) {
  const value = held.answers[named(path, query)];
  if (value === undefined) throw new ServerError(held.limit, held.hint);
  return value;
}

export async function answer(path, query) {
  const kind = path.slice(path.lastIndexOf("/") + 1);
  if (kind === "lanes") return lanes(query);
  if (kind === "near") return { messages: [] };
  if (kind === "path") return steps(found(path, query.epoch === undefined ? query : { epoch: query.epoch }), query);
  return found(path, query);
}

const TYPES = { csv: "text/csv", svg: "image/svg+xml", json: "application/json" };

// An address under which a browser saves an answer; none where the file does not hold it.
export async function fileOf(path, query) {
  const value = held.answers[named(path, query)];
  if (value === undefined) return null;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return URL.createObjectURL(new Blob([text], { type: TYPES[path.slice(path.lastIndexOf(".") + 1)] }));
}

// Columns of what touches a view.
function within(columns, { from, to }) {
  const rows = columns.begin.map((_, row) => row).filter((row) => columns.end[row] > from && columns.begin[row] < to);
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, rows.map((row) => values[row])]));
}

// A window was drawn at several widths; the narrowest that is as fine as the view is shown, or the finest.
function lanes({ from, to, pixels }) {
  const view = { from: Number(from), to: Number(to) };
  const window = held.lanes.find((each) => each.from <= view.from && view.to <= each.to);
  if (!window) throw new ServerError(held.limit, held.hint);
  const level = window.levels.find((each) => each.pixel_ns <= (view.to - view.from) / pixels) ?? window.levels.at(-1);
  const coarse = level.pixel_ns > (view.to - view.from) / pixels && !level.single;
  return { exact: true, boxes: within(level.boxes, view), messages: within(level.messages, view), note: coarse ? held.coarse : "" };
}

function steps(path, { view_from: from, view_to: to }) {
  return from === undefined ? path : { ...path, steps: within(path.steps, { from: from - 1, to: to + 1 }) };
}
