// Elements are made here and nowhere else: texts become text nodes, so a name of a trace is never markup.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

// Tells those who listen instead of looking what has changed: in a few words, for each of them is read out.
export function say(words) {
  document.getElementById("said").textContent = words;
}

export const replace = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter(Boolean));

// A table of rows; numbers stand at the right. `pick` is called with the row that is clicked; by keyboard, that is a
// button in its first cell.
export function table(rows, columns, { titles = {}, pick = null, cell = null, label = "" } = {}) {
  const numeric = (name) => rows.some((row) => typeof row[name] === "number") && (name.endsWith("_ns") || typeof cell?.(rows.find((row) => typeof row[name] === "number"), name) !== "string");
  const sides = new Map(columns.map((name) => [name, numeric(name) ? "number" : null]));
  const head = make("tr", {}, columns.map((name) => make("th", { scope: "col", class: sides.get(name) }, titles[name] ?? name)));
  const body = rows.map((row) => {
    const cells = columns.map((name, place) => {
      const value = cell ? cell(row, name) : undefined;
      const shown = value === undefined ? plain(row[name]) : value;
      return make("td", { class: sides.get(name) }, pick && place === 0 ? make("button", { type: "button", class: "row" }, shown) : shown);
    });
    return make("tr", pick ? { class: "pick", onclick: () => pick(row) } : {}, cells);
  });
  return make("div", { class: "scroll" }, make("table", { "aria-label": label }, make("thead", {}, head), make("tbody", {}, body)));
}

export function plain(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(4);
  return readable(typeof value === "object" ? JSON.stringify(value) : String(value));
}

// A text of a trace, on one line of some length, without what would turn the direction of a page round.
const UNREADABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const LONGEST = 300;

export function readable(text) {
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return shown.replace(UNREADABLE, "?");
}

// A picture of the server, as elements: what a picture may hold is known, and nothing else is taken over.
const DRAWN = new Set(["svg", "g", "rect", "line", "polyline", "path", "circle", "text", "tspan", "title", "defs", "marker"]);

export function drawing(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  for (const element of [...root.querySelectorAll("*")]) if (!DRAWN.has(element.localName)) element.remove();
  return document.importNode(root, true);
}

// Draws anew what has another width, until the signal says stop.
export function watchWidth(element, draw, signal) {
  const watching = new ResizeObserver(draw);
  watching.observe(element);
  signal.addEventListener("abort", () => watching.disconnect());
}

export const failure = (error) =>
  make("p", { class: "error", role: "alert" }, error.message, error.hint ? `\n${error.hint}` : "");
