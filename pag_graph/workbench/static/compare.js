// Two windows, of one run or of two: the exact difference, and both paths.

import { drawing, failure, make, replace, table } from "./dom.js";
import { duration } from "./format.js";
import { Lanes, legend } from "./lanes.js";
import { go, windowName, windowOf } from "./place.js";
import { ask, askText, of, runFacts } from "./server.js";
import { ways } from "./ways.js";

export async function show(stage, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = windowOf(given, run);
  const { runs } = await ask("/api/runs");
  const names = namesOf(runs);
  const box = make("div", { id: "answer" }, make("p", { class: "faint" }, "Comparing…"));
  const other = make("select", { id: "other" }, make("option", { value: "" }, "the same run"), runs.filter((each) => !each.error && each.store !== store).map((each) => make("option", { value: each.store, selected: each.store === given.against }, names.get(each.store))));
  const epoch = make("input", { id: "against-epoch", size: 8, inputmode: "numeric", value: given.against_epoch ?? "", placeholder: "usual" });
  const compare = () => go("compare", { store, ...window, against: other.value, against_epoch: epoch.value.trim() });
  epoch.addEventListener("keydown", ({ key }) => key === "Enter" && compare());
  stage.draw(
    `pag: compare ${run.title}`,
    make("h1", {}, `Compare: ${windowName(window)} of ${names.get(store) ?? run.title}, against another`),
    ways("compare", { store, ...window }),
    make("div", { class: "bar" }, "Against", make("label", { class: "field" }, "run", other), make("label", { class: "field" }, "epoch", epoch), make("button", { type: "button", id: "compare", onclick: compare }, "Compare")),
    make("p", { class: "faint hint" }, "Without an epoch it is a usual one: of this run a typical round, of another run the epoch of the same number."),
    box,
  );
  try {
    await showDifference(stage, box, { store, run, window, base: given.against || store, names }, { ...window, against: given.against, against_epoch: given.against_epoch });
  } catch (error) {
    if (error.name !== "AbortError") replace(box, failure(error));
  }
}

// Names of stores: those with one title are told from each other by their folders.
function namesOf(runs) {
  const several = ({ store, title }) => runs.some((each) => each.store !== store && each.title === title);
  return new Map(runs.map((each) => [each.store, several(each) ? `${each.title} in ${each.place}` : each.title]));
}

async function showDifference(stage, box, { store, run, window, base, names }, query) {
  const told = await ask(`${of(store)}/analysis/diff.json`, query, "analysis");
  const before = await runFacts(base);
  const titled = (text, side) => text.replaceAll(`run ${side.facts.run}`, names.get(side.store) ?? side.facts.title);
  const [old, now] = [{ store: base, facts: before }, { store, facts: run }];
  // Where two stores hold one run, a sentence about both says neither's name.
  const said = told.headline || told.text;
  const headline = base !== store && before.run === run.run ? said : titled(titled(said, old), now);
  const figure = make("figure", {});
  const cell = (row, name) => (name.endsWith("_ns") && typeof row[name] === "number" ? make("span", { "data-ns": row[name] }, duration(row[name])) : undefined);
  const above = make("div", { id: "pair" });
  replace(box, make("p", { class: "cause" }, headline), figure, above, make("h2", {}, "Differences; they sum to the whole"), table(told[told.rows_name], told.columns, { cell, label: "Differences; they sum to the whole" }));
  askText(`${of(store)}/analysis/diff.svg`, query, "picture").then((text) => replace(figure, drawing(text)), (error) => error.name !== "AbortError" && replace(figure, failure(error)));
  const parts = [
    { store: base, run: before, window: epochOf(told.before), name: `Before: ${titled(told.before, old)}`, span: told.before_ns },
    { store, run, window, name: `After: ${titled(told.after, now)}`, span: told.after_ns },
  ].filter((part) => part.window && part.run.aligned);
  if (parts.length === 2) await lanesAbove(stage, above, parts);
}

// The window that a comparison names, where it is that of an epoch.
function epochOf(name) {
  const [, epoch] = /^epoch (\d+) of run/.exec(name) ?? [];
  return epoch === undefined ? null : { epoch };
}

// Lanes of windows above each other, at one scale: a nanosecond is as wide in each.
async function lanesAbove(stage, box, parts) {
  const span = Math.max(...parts.map((part) => part.span), 1);
  for (const { store, run, window, name } of parts) {
    const path = await ask(`${of(store)}/path`, { ...window, pixels: 2000 });
    const canvas = make("canvas", { role: "img", class: "compared", "aria-label": `Lanes of ${name}, the critical path in red` });
    const colours = make("p", { class: "legend" });
    box.append(make("h2", {}, `${name}, ${duration(path.span_ns)}`), canvas, colours);
    const lanes = new Lanes(canvas, run);
    await lanes.still(store, path, { from: path.start_ns, to: path.start_ns + span }, stage.signal);
    replace(colours, legend(lanes));
    canvas.dataset.boxes = String(lanes.boxes.worker.length);
    canvas.dataset.span = String(lanes.view.to - lanes.view.from);
  }
}
