// News of the run that is shown, for whoever listens: epochs that were closed, alerts, and what goes on.

import { forget, of } from "./server.js";
import { address, listen } from "./transport.js";

const RECENT = 1000; // epochs that a page hears of that begins to listen while it loads the others
const target = new EventTarget();
let heard = null; // what is listened to

// Listens to a run, of which some facts are known. `redraw` is called after a commit, and told whether the run
// has only grown.
export function follow(store, facts, said, redraw) {
  if (heard?.store === store) return;
  leave(said);
  if (!store) return;
  const own = { store, version: facts.version, commit: facts.commit, run: facts.run, open: facts.open, epochs: facts.epochs.length, last: {}, recent: [] };
  const pass = (name, detail) => target.dispatchEvent(new CustomEvent(name, { detail }));
  const keep = (name) => (detail) => {
    own.last[name] = detail;
    pass(name, detail);
  };
  const commit = (now) => {
    said.textContent = `${now.epochs} epochs`;
    pass("commit", now);
    if (now.commit === own.commit) return;
    // Epochs that were open when they were drawn have become others.
    const grown = now.followed && !own.open && now.run === own.run && now.version > own.version && now.epochs >= own.epochs;
    Object.assign(own, { version: now.version, commit: now.commit, run: now.run, open: now.open, epochs: now.epochs });
    // What was heard of another store is no news of this one.
    if (!grown) own.recent = [];
    if (!now.followed) delete own.last.ongoing;
    forget(store);
    redraw(grown);
  };
  const epoch = (detail) => {
    own.recent = [...own.recent.slice(1 - RECENT), detail];
    pass("epoch", detail);
  };
  const lost = (again) => {
    said.textContent = again ? "not connected; trying again" : "not connected; load the page again";
  };
  own.close = listen(address(`${of(store)}/events`, { after: facts.epochs.at(-1)?.epoch ?? -1, commit: facts.commit }), { commit, epoch, alerts: keep("alerts"), ongoing: keep("ongoing") }, lost);
  heard = own;
}

function leave(said) {
  heard?.close();
  heard = null;
  said.textContent = "";
}

// Calls `handle` with what was said last, and then with what is said, until the signal says stop.
export function hear(name, handle, signal) {
  for (const detail of name === "epoch" ? heard?.recent ?? [] : [heard?.last[name]]) if (detail) handle(detail);
  target.addEventListener(name, ({ detail }) => handle(detail), { signal });
}
