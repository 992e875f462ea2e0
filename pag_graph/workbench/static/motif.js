// Motifs: a box for a pattern; matches are lit up in the lanes of their window.

import { failure, make, replace, say, table } from "./dom.js";
import { duration } from "./format.js";
import { Lanes, legend } from "./lanes.js";
import { go, windowName, windowOf } from "./place.js";
import { ask, of, runFacts } from "./server.js";
import { quoted } from "./texts.js";
import { ways } from "./ways.js";

export async function show(stage, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = windowOf(given, run);
  const pattern = make("input", { id: "pattern", size: 36, value: given.pattern ?? "", placeholder: "late_sender, or (a)-[e]->(b)", "aria-label": "Motif, or the name of one", list: "motifs" });
  const known = make("datalist", { id: "motifs" }, Object.entries(run.motifs).map(([name, { motif }]) => make("option", { value: name }, motif)));
  const where = make("input", { id: "where", size: 40, value: given.where ?? "", placeholder: "e.duration_ns > us(50)", "aria-label": "What must hold of a match" });
  const box = make("div", { id: "answer" });
  const canvas = make("canvas", { id: "lanes", role: "img", "aria-label": "Lanes of the window; the chosen match is lit up." });
  const colours = make("p", { class: "legend" });
  const lanes = new Lanes(canvas, run);
  const look = () => go("motif", { store, ...window, pattern: pattern.value.trim(), where: where.value.trim() });
  for (const input of [pattern, where]) input.addEventListener("keydown", ({ key }) => key === "Enter" && look());
  stage.draw(
    `pag: motifs of ${run.title}`,
    make("h1", {}, `Motifs in ${windowName(window)} of ${run.title}`),
    ways("motif", { store, ...window }),
    make("div", { class: "bar" }, make("label", { class: "field" }, "motif", pattern), known, make("label", { class: "field" }, "where", where), make("button", { type: "button", id: "look", onclick: look }, "Look")),
    canvas, colours, box,
  );
  if (!given.pattern) replace(box, motifsToChoose(run, (name) => go("motif", { store, ...window, pattern: name })));
  const path = await ask(`${of(store)}/path`, { ...window, pixels: 2000 });
  if (run.aligned) {
    await lanes.still(store, path, { from: path.start_ns, to: path.end_ns }, stage.signal);
    replace(colours, legend(lanes));
  }
  if (given.pattern) await showMatches(box, lanes, { store, run, path }, given);
}

function motifsToChoose(run, pick) {
  const rows = Object.entries(run.motifs).map(([name, facts]) => ({ name, ...facts }));
  return [make("h2", {}, "Motifs that have a name"), table(rows, ["name", "purpose", "motif"], { label: "Motifs that have a name", titles: { purpose: "finds" }, pick: ({ name }) => pick(name) })];
}

async function showMatches(box, lanes, { store, run, path }, { pattern, where }) {
  const epochs = run.epochs.filter((each) => each.start_ns < path.end_ns && each.end_ns > path.start_ns).map(({ epoch }) => epoch);
  const [first, last] = [epochs[0], epochs.at(-1)];
  replace(box, make("p", { class: "faint" }, "Looking…"));
  try {
    const told = await ask(`${of(store)}/motif`, { epoch: first, last_epoch: last, pattern, where }, "motif");
    const rows = told.rows.map((row, number) => ({ ...row, number }));
    const names = told.columns.filter((name) => /\.(type|duration_ns|worker|operator|records|kind)$/.test(name) && rows.some((row) => row[name] !== null));
    const light = (edges) => {
      lanes.lit = edges;
      lanes.canvas.dataset.lit = String(edges.length);
      lanes.draw();
    };
    const cell = (row, name) => (name.endsWith("_ns") && typeof row[name] === "number" ? make("span", { "data-ns": row[name] }, duration(row[name])) : undefined);
    const words = `${told.total.toLocaleString("en")} match${told.total === 1 ? "" : "es"}${first === last ? "" : ` that end in epochs ${first} to ${last}`}`;
    say(words);
    replace(
      box,
      make("p", {}, `${words}${rows.length < told.total ? `; the first ${rows.length} are shown` : ""}${rows.length ? ". Click one to light up it alone." : "."}`),
      rows.length ? table(rows, names, { label: "Matches", cell, pick: (row) => light(told.edges[row.number]) }) : null,
      make("pre", {}, `pag motif ${quoted(pattern)} ${quoted(run.called)} --epochs ${first === last ? first : `${first}-${last}`}${where ? ` --where ${quoted(where)}` : ""}`),
    );
    light(told.edges.flat());
  } catch (error) {
    if (error.name !== "AbortError") replace(box, failure(error));
  }
}
