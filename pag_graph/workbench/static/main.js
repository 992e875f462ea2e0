// The page: an address chooses what is shown, and news of commits show it anew.

import { failure, make, replace } from "./dom.js";
import { link, read } from "./place.js";
import { forget, of, runFacts } from "./server.js";
import { home, listen as hear, memory, offers, ready } from "./transport.js";

const PAGES = {
  runs: () => import("./runs.js"), run: () => import("./run.js"), window: () => import("./window.js"), panels: () => import("./panels.js"),
  "what-if": () => import("./what-if.js"), compare: () => import("./compare.js"), motif: () => import("./motif.js"),
};

const main = document.getElementById("main");
const where = document.getElementById("where");
const news = document.getElementById("news");
let leave = null;
let listening = null;
let turn = 0;

async function show() {
  const own = ++turn;
  const { page, given } = read(home());
  leave?.();
  leave = null;
  listen(given.store);
  try {
    const shown = await (PAGES[page] ?? PAGES.runs)();
    const title = given.store ? (await runFacts(given.store)).title : null;
    if (own !== turn) return;
    replace(where, offers("runs") && [make("a", { href: link("runs") }, "Runs"), title && " / "], title && make("a", { href: link("run", { store: given.store, epoch: given.epoch }) }, title), page !== "run" && title && ` / ${page}`);
    main.dataset.page = "";
    const left = await shown.show(main, given);
    if (own === turn) leave = left ?? null;
    else left?.();
    main.dataset.page = page;
  } catch (error) {
    if (error.name !== "AbortError" && own === turn) {
      const { page: first, given: begin } = home();
      replace(main, failure(error), make("p", {}, make("a", { href: link(first, begin) }, "Back to the beginning")));
      main.dataset.page = "error";
    }
  }
}

// One event per commit of the run that is shown.
function listen(store) {
  if (listening?.store === store) return;
  listening?.close();
  listening = null;
  news.textContent = "";
  if (!store) return;
  const commit = ({ epochs }) => {
    forget(store);
    news.textContent = `${epochs} epochs`;
    if (read().page === "run" || read().page === "runs") show();
  };
  listening = { store, close: hear(`${of(store)}/events`, { commit }) };
}

const root = document.documentElement;
const remembered = memory.getItem("theme");
root.dataset.theme = remembered ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  memory.setItem("theme", root.dataset.theme);
  show();
});
addEventListener("hashchange", show);
Promise.resolve(ready()).then(show).catch((error) => replace(main, failure(error)));
