// The address holds the whole state of the page: a link shows what its sender saw.

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

// The window that an address means, as the server takes it.
export function chosen(given) {
  if (given.from !== undefined) return { from: given.from, to: given.to };
  return given.epoch === undefined ? {} : { epoch: given.epoch };
}
