// Two epochs, of one run or of two: the exact difference, and both paths.

import { drawing, failure, make, replace, table } from "./dom.js";
import { duration } from "./format.js";
import { Lanes } from "./lanes.js";
import { chosen, go } from "./place.js";
import { ask, askText, of, runFacts } from "./server.js";
import { ways } from "./ways.js";

export async function show(main, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = chosen(given);
  const { runs } = await ask("/api/runs");
  document.title = `pag: compare ${run.title}`;
  const box = make("div", { id: "answer" }, make("p", { class: "faint" }, "Comparing…"));
  const other = make("select", { id: "other" }, make("option", { value: "" }, "the same run"), runs.filter((each) => !each.error && each.store !== store).map((each) => make("option", { value: each.store, selected: each.store === given.against }, each.title)));
  const epoch = make("input", { id: "against-epoch", size: 8, value: given.against_epoch ?? "", placeholder: "median" });
  const compare = () => go("compare", { store, ...window, against: other.value, against_epoch: epoch.value });
  replace(
    main,
    make("h1", {}, `${window.epoch === undefined ? "The slowest round" : `Epoch ${window.epoch}`} of ${run.title}, against another`),
    ways("compare", { store, ...window }),
    make("div", { class: "bar" }, make("label", { class: "field" }, "run", other), make("label", { class: "field" }, "epoch", epoch), make("button", { type: "button", id: "compare", onclick: compare }, "Compare")),
    box,
  );
  const query = { ...window, against: given.against, against_epoch: given.against_epoch };
  try {
    const told = await ask(`${of(store)}/analysis/diff.json`, query, "analysis");
    const rows = told[told.rows_name];
    const figure = make("figure", {});
    const cell = (row, name) => (name.endsWith("_ns") && typeof row[name] === "number" ? make("span", { "data-ns": row[name] }, duration(row[name])) : undefined);
    const above = make("div", { id: "pair" });
    replace(box, make("p", {}, told.headline || told.text), above, figure, table(rows, told.columns, { cell, label: "Differences; they sum to the whole" }));
    askText(`${of(store)}/analysis/diff.svg`, query, "picture").then((text) => replace(figure, drawing(text)), (error) => replace(figure, failure(error)));
    const base = given.against || store;
    await lanesAbove(above, [
      { store, run, window, name: `after: ${told.after}`, span: told.after_ns },
      { store: base, run: await runFacts(base), window: epochOf(told.before), name: `before: ${told.before}`, span: told.before_ns },
    ].filter(({ window: chosenWindow, run: facts }) => chosenWindow && facts.aligned));
  } catch (error) {
    if (error.name !== "AbortError") replace(box, failure(error));
  }
}

// The window that a comparison names, where it is that of an epoch.
function epochOf(name) {
  const [, epoch] = /^epoch (\d+) of run/.exec(name) ?? [];
  return epoch === undefined ? null : { epoch };
}

// Lanes of windows above each other, at one scale: a nanosecond is as wide in each.
async function lanesAbove(box, parts) {
  if (parts.length < 2) return;
  const span = Math.max(...parts.map((part) => part.span), 1);
  for (const { store, run, window, name } of parts) {
    const path = await ask(`${of(store)}/path`, { ...window, pixels: 2000 });
    const canvas = make("canvas", { role: "img", class: "compared", "aria-label": `Lanes of ${name}, the critical path in red` });
    box.append(make("h3", {}, `${name}, ${duration(path.span_ns)}`), canvas);
    const lanes = new Lanes(canvas, run);
    lanes.view = { from: path.start_ns, to: path.start_ns + span };
    lanes.steps = path.steps;
    lanes.look.messages = false;
    lanes.draw();
    lanes.boxes = (await ask(`${of(store)}/lanes`, { from: path.start_ns, to: path.end_ns, pixels: Math.max(Math.round((lanes.width * path.span_ns) / span), 1) })).boxes;
    lanes.draw();
    canvas.dataset.boxes = String(lanes.boxes.worker.length);
    canvas.dataset.span = String(lanes.view.to - lanes.view.from);
  }
}
