// The pages of a run, for the same window; the one that is shown is marked.

import { make } from "./dom.js";
import { link } from "./place.js";
import { offers } from "./transport.js";

export const WAYS = { run: "Run", window: "Lanes", panels: "Analyses", "what-if": "What if", compare: "Compare", motif: "Motifs" };

export const ways = (own, here) =>
  make("nav", { class: "ways", "aria-label": "Pages of this run" }, Object.entries(WAYS).filter(([page]) => offers(page)).map(([page, words]) => make("a", { href: link(page, here), id: `open-${page}`, "aria-current": page === own ? "page" : null }, words)));
