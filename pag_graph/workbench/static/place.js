// The address holds the whole state of the page: a link shows what its sender saw.

import { duration } from "./format.js";

// What the address says; its page is null where it says nothing.
export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const given = {};
  for (const [name, value] of new URLSearchParams(query)) {
    given[name] = name in given ? [].concat(given[name], value) : value;
  }
  return { page: path || null, given };
}

export function link(page, given = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of [].concat(value)) search.append(name, each);
  }
  return `#/${page}?${search}`;
}

export function go(page, given) {
  location.hash = link(page, given);
}

// Writes a change into the address without another entry in the history, and without drawing anew.
export function note(changes) {
  const { page, given } = read();
  history.replaceState(null, "", link(page, { ...given, ...changes }));
}

export const list = (value) => (value === undefined ? [] : [].concat(value));

// The window that an address means, as the server takes it: the slowest round where it says none.
export function windowOf(given, run) {
  if (given.from !== undefined) return { from: given.from, to: given.to };
  return { epoch: given.epoch ?? run.slowest };
}

// What a window is called, and how the command line is told of it.
export const windowName = ({ epoch, from, to }) => (epoch === undefined ? `${duration(Number(from))} to ${duration(Number(to))}` : `epoch ${epoch}`);
export const windowOption = ({ epoch, from, to }) => (epoch === undefined ? `--between ${from} ${to}` : `--epoch ${epoch}`);
