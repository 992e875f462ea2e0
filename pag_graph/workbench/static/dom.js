// Elements are made here and nowhere else: texts become text nodes, so a name of a trace is never markup.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const replace = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter(Boolean));

// A table of rows; numbers stand at the right. `pick` is called with the row that is clicked.
export function table(rows, columns, { titles = {}, pick = null, cell = null, label = "" } = {}) {
  const head = make("tr", {}, columns.map((name) => make("th", { scope: "col" }, titles[name] ?? name)));
  const body = rows.map((row) => {
    const cells = columns.map((name) => {
      const value = cell ? cell(row, name) : undefined;
      const shown = value === undefined ? plain(row[name]) : value;
      return make("td", { class: typeof row[name] === "number" ? "number" : null }, shown);
    });
    const attributes = pick
      ? { class: "pick", tabindex: 0, onclick: () => pick(row), onkeydown: (key) => key.key === "Enter" && pick(row) }
      : {};
    return make("tr", attributes, cells);
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

export const failure = (error) =>
  make("p", { class: "error", role: "alert" }, error.message, error.hint ? `\n${error.hint}` : "");
