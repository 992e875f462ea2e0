// The page: an address chooses what is shown, and news of commits show it anew.

import { failure, make, replace } from "./dom.js";
import { link, read } from "./place.js";
import { forget, of, runFacts } from "./server.js";

const PAGES = { runs: "./runs.js", run: "./run.js", window: "./window.js", panels: "./panels.js", "what-if": "./what-if.js", compare: "./compare.js", motif: "./motif.js" };

const main = document.getElementById("main");
const where = document.getElementById("where");
const news = document.getElementById("news");
let leave = null;
let listening = null;
let turn = 0;

async function show() {
  const own = ++turn;
  const { page, given } = read();
  leave?.();
  leave = null;
  listen(given.store);
  try {
    const shown = await import(PAGES[page] ?? PAGES.runs);
    const title = given.store ? (await runFacts(given.store)).title : null;
    if (own !== turn) return;
    replace(where, make("a", { href: link("runs") }, "Runs"), title && [" / ", make("a", { href: link("run", { store: given.store, epoch: given.epoch }) }, title)], page !== "run" && title && ` / ${page}`);
    main.dataset.page = "";
    const left = await shown.show(main, given);
    if (own === turn) leave = left ?? null;
    else left?.();
    main.dataset.page = page;
  } catch (error) {
    if (error.name !== "AbortError" && own === turn) {
      replace(main, failure(error), make("p", {}, make("a", { href: link("runs") }, "All runs")));
      main.dataset.page = "error";
    }
  }
}

// One event per commit of the run that is shown; the browser asks again by itself after a lost connection.
function listen(store) {
  if (listening?.store === store) return;
  listening?.source.close();
  listening = null;
  news.textContent = "";
  if (!store) return;
  const source = new EventSource(`${of(store)}/events`);
  listening = { store, source };
  source.addEventListener("commit", (event) => {
    const { epochs } = JSON.parse(event.data);
    forget(store);
    news.textContent = `${epochs} epochs`;
    if (read().page === "run" || read().page === "runs") show();
  });
}

const root = document.documentElement;
const remembered = localStorage.getItem("theme");
root.dataset.theme = remembered ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  show();
});
addEventListener("hashchange", show);
show();
