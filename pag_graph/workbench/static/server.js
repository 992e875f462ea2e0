// Questions to the server. The last question of a kind wins: what was asked before is given up.

const asked = new Map();

export class ServerError extends Error {
  constructor(message, hint) {
    super(message);
    this.hint = hint;
  }
}

export function address(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, each);
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

async function answer(path, query, kind) {
  const controller = new AbortController();
  if (kind) {
    asked.get(kind)?.abort();
    asked.set(kind, controller);
  }
  let response;
  try {
    response = await fetch(address(path, query), { signal: controller.signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer.", "Is `pag serve` still running?");
  }
  if (!response.ok) {
    const text = await response.text();
    let told = { message: text };
    try {
      told = JSON.parse(text);
    } catch {
      told = { message: text || `The server says ${response.status}.` };
    }
    throw new ServerError(told.message, told.hint);
  }
  return response;
}

export const ask = async (path, query = {}, kind = null) => (await answer(path, query, kind)).json();
export const askText = async (path, query = {}, kind = null) => (await answer(path, query, kind)).text();
export const of = (store) => `/api/run/${encodeURIComponent(store)}`;

// What a page knows of a run, until there is a later commit.
const runs = new Map();

export async function runFacts(store) {
  if (!runs.has(store)) {
    const facts = await ask(of(store));
    facts.byOperator = new Map(facts.operators.map((row) => [row.operator, row]));
    facts.place = new Map(facts.workers.map((row, place) => [row.worker, place]));
    runs.set(store, facts);
  }
  return runs.get(store);
}

export const forget = (store) => runs.delete(store);
