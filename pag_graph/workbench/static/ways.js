// Links from a page of a run to the others, for the same window.

import { make } from "./dom.js";
import { link } from "./place.js";
import { offers } from "./transport.js";

const WAYS = { run: "Run", window: "Lanes", panels: "Analyses", "what-if": "What if", compare: "Compare", motif: "Motifs" };

export const ways = (own, here) =>
  Object.entries(WAYS).filter(([page]) => page !== own && offers(page)).map(([page, words]) => make("a", { href: link(page, here), id: `open-${page}` }, words));
