// How this page gets its answers: from the server that sent it. A page in one file has held.js in this place.

import { ServerError } from "./errors.js";

// Nothing has to be unpacked.
export const ready = () => null;

// Where a page begins that is opened without anything behind its address.
export const home = () => ({ page: "runs", given: {} });

// Whether there are answers to what a page would ask.
export const offers = () => true;

// What is remembered from visit to visit.
export const memory = localStorage;

// How far lanes can be moved around a window.
export const limits = (run) => ({ from: 0, to: run.end_ns });

export function address(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of [].concat(value)) search.append(name, each);
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

export async function answer(path, query, signal, asText) {
  let response;
  try {
    response = await fetch(address(path, query), { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer.", "Is `pag serve` still running?");
  }
  if (response.ok) return asText ? response.text() : response.json();
  const text = await response.text();
  let told;
  try {
    told = JSON.parse(text);
  } catch {
    told = { message: text || `The server says ${response.status}.` };
  }
  throw new ServerError(told.message, told.hint);
}

// An address under which a browser saves an answer.
export const fileOf = async (path, query) => address(path, query);

// Where it stands how an analysis is defined.
export const definitionOf = (name) => `/definition/${encodeURIComponent(name)}`;

// News of a run; the browser asks again by itself after a lost connection, behind the last event that it saw, unless it
// was refused: `lost` is told whether it does.
export function listen(path, handlers, lost) {
  const source = new EventSource(path);
  source.addEventListener("error", () => lost(source.readyState !== EventSource.CLOSED));
  for (const [name, handle] of Object.entries(handlers)) source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
  return () => source.close();
}
