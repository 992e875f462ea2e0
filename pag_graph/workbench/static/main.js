// The page: an address chooses what is shown, and news of commits show it anew.

import { failure, make, replace } from "./dom.js";
import { follow } from "./news.js";
import { link, read } from "./place.js";
import { runFacts } from "./server.js";
import { home, memory, offers, ready } from "./transport.js";
import { WAYS } from "./ways.js";

const PAGES = {
  runs: () => import("./runs.js"), run: () => import("./run.js"), window: () => import("./window.js"), panels: () => import("./panels.js"),
  "what-if": () => import("./what-if.js"), compare: () => import("./compare.js"), motif: () => import("./motif.js"), spark: () => import("./spark.js"),
};

const main = document.getElementById("main");
const where = document.getElementById("where");
const news = document.getElementById("news");
let turn = new AbortController(); // what is shown, until something else is

// What the address says; where it says nothing, it is given the beginning.
function begin() {
  const first = home();
  if (read().page === null) history.replaceState(null, "", link(first.page, first.given));
  return read();
}

// What a page draws on, while it is its turn. `signal` says when it is left: whatever listens for a page, listens until
// then. A page that was left while it waited for an answer draws nothing over the one that came after it.
function stageFor({ signal }) {
  const draw = (title, ...children) => {
    signal.throwIfAborted();
    document.title = title;
    replace(main, ...children);
  };
  return { draw, signal, within: (selector) => main.querySelectorAll(selector) };
}

async function show() {
  turn.abort();
  const own = new AbortController();
  turn = own;
  const { page, given } = begin();
  main.dataset.page = "";
  main.setAttribute("aria-busy", "true");
  try {
    const shown = await (PAGES[page] ?? PAGES.runs)();
    const facts = given.store ? await runFacts(given.store) : null;
    const title = facts?.title ?? (given.log && "Spark application");
    const named = facts ? make("a", { href: link("run", { store: given.store, epoch: given.epoch }) }, title) : title;
    own.signal.throwIfAborted();
    // A run that only grows is followed by its pages themselves.
    follow(given.store, facts, news, (grown) => grown || show());
    replace(where, offers("runs") && [make("a", { href: link("runs") }, "Runs"), title && " / "], facts?.made_of && [make("a", { href: link("spark", { log: given.store }) }, "Spark application"), " / "], named, page !== "run" && facts && WAYS[page] && ` / ${WAYS[page]}`);
    await shown.show(stageFor(own), given);
    own.signal.throwIfAborted();
    main.dataset.page = page;
  } catch (error) {
    if (own.signal.aborted) return;
    const first = home();
    const again = make("button", { type: "button", id: "again", onclick: show }, "Try again");
    replace(main, failure(error), make("p", { class: "bar" }, again, make("a", { href: link(first.page, first.given) }, "Back to the beginning")));
    main.dataset.page = "error";
  }
  main.removeAttribute("aria-busy");
}

const root = document.documentElement;
const remembered = memory.getItem("theme");
root.dataset.theme = remembered ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

// Drawings have the colours that the theme had when they were made.
function dress(theme) {
  root.dataset.theme = theme;
  for (const canvas of document.querySelectorAll("canvas")) canvas.dispatchEvent(new Event("recolour"));
}

document.getElementById("theme").addEventListener("click", () => {
  dress(root.dataset.theme === "dark" ? "light" : "dark");
  memory.setItem("theme", root.dataset.theme);
});
// Paper is light.
let screen = null;
addEventListener("beforeprint", () => {
  screen = root.dataset.theme;
  dress("light");
});
addEventListener("afterprint", () => dress(screen));
addEventListener("hashchange", show);
Promise.resolve(ready()).then(show).catch((error) => replace(main, failure(error)));
