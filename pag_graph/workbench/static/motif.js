// Motifs: a box for a pattern; matches are lit up in the lanes of their window.

import { failure, make, replace, table } from "./dom.js";
import { Lanes } from "./lanes.js";
import { chosen, go } from "./place.js";
import { ask, of, runFacts } from "./server.js";
import { ways } from "./ways.js";

export async function show(main, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = chosen(given);
  if (window.epoch === undefined) window.epoch = run.slowest;
  document.title = `pag: motifs of ${run.title}`;
  const pattern = make("input", { id: "pattern", size: 44, value: given.pattern ?? "late_sender", "aria-label": "Motif, or the name of one", list: "motifs" });
  const known = make("datalist", { id: "motifs" }, Object.entries(run.motifs).map(([name, motif]) => make("option", { value: name }, motif)));
  const where = make("input", { id: "where", size: 40, value: given.where ?? "", placeholder: "e.duration_ns > us(50)", "aria-label": "What must hold of a match" });
  const box = make("div", { id: "answer" });
  const canvas = make("canvas", { id: "lanes", role: "img", "aria-label": "Lanes of the window; the chosen match is lit up." });
  const lanes = new Lanes(canvas, run);
  const look = () => go("motif", { store, ...window, pattern: pattern.value, where: where.value });
  replace(
    main,
    make("h1", {}, `Motifs in epoch ${window.epoch} of ${run.title}`),
    ways("motif", { store, ...window }),
    make("div", { class: "bar" }, pattern, known, where, make("button", { type: "button", id: "look", onclick: look }, "Look")),
    canvas, box,
  );
  lanes.draw();
  const path = await ask(`${of(store)}/path`, { ...window, pixels: 2000 });
  lanes.view = { from: path.start_ns, to: path.end_ns };
  lanes.steps = path.steps;
  lanes.look.messages = false;
  lanes.boxes = (await ask(`${of(store)}/lanes`, { ...lanes.view, pixels: Math.round(lanes.width) }, "lanes")).boxes;
  lanes.draw();
  if (!given.pattern) return;
  try {
    const told = await ask(`${of(store)}/motif`, { epoch: window.epoch, pattern: given.pattern, where: given.where }, "motif");
    const rows = told.rows.map((row, number) => ({ ...row, number }));
    const names = told.columns.filter((name) => /\.(type|duration_ns|worker|operator|records|kind)$/.test(name) && rows.some((row) => row[name] !== null));
    replace(
      box,
      make("p", {}, `${told.total.toLocaleString("en")} matches${rows.length < told.total ? `; the first ${rows.length} are shown` : ""}. Click one to light it up.`),
      table(rows, names, { label: "Matches", pick: (row) => { lanes.lit = told.edges[row.number]; lanes.draw(); canvas.dataset.lit = String(lanes.lit.length); } }),
      make("pre", {}, `pag motif '${given.pattern}' ${run.title} --epochs ${window.epoch}${given.where ? ` --where "${given.where}"` : ""}`),
    );
    lanes.lit = told.edges.flat();
    lanes.draw();
  } catch (error) {
    replace(box, failure(error));
  }
}
