// Questions of the pages. The last question of a kind wins: what was asked before is given up.

import { answer } from "./transport.js";

const asked = new Map();

function question(path, query, kind, asText) {
  const controller = new AbortController();
  if (kind) {
    asked.get(kind)?.abort();
    asked.set(kind, controller);
  }
  return answer(path, query, controller.signal, asText);
}

export const ask = (path, query = {}, kind = null) => question(path, query, kind, false);
export const askText = (path, query = {}, kind = null) => question(path, query, kind, true);
export const of = (store) => `/api/run/${encodeURIComponent(store)}`;

// What a page knows of a run, until there is a later commit. What is still being asked when it comes is not kept.
const runs = new Map();

export function runFacts(store) {
  if (!runs.has(store)) {
    const asking = askFacts(store);
    runs.set(store, asking);
    asking.catch(() => runs.get(store) === asking && forget(store));
  }
  return runs.get(store);
}

async function askFacts(store) {
  const facts = await ask(of(store));
  facts.byOperator = new Map(facts.operators.map((row) => [row.operator, row]));
  facts.place = new Map(facts.workers.map((row, place) => [row.worker, place]));
  return facts;
}

export const forget = (store) => runs.delete(store);
