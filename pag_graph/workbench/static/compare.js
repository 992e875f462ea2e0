// Two epochs, of one run or of two: the exact difference, and both paths.

import { drawing, failure, make, replace, table } from "./dom.js";
import { duration } from "./format.js";
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
    make("div", { class: "bar" }, make("label", { class: "field" }, "run", other), make("label", { class: "field" }, "epoch", epoch), make("button", { type: "button", id: "compare", onclick: compare }, "Compare"), ways("compare", { store, ...window })),
    box,
  );
  const query = { ...window, against: given.against, against_epoch: given.against_epoch };
  try {
    const told = await ask(`${of(store)}/analysis/diff.json`, query, "analysis");
    const rows = told[told.rows_name];
    const figure = make("figure", {});
    const cell = (row, name) => (name.endsWith("_ns") && typeof row[name] === "number" ? make("span", { "data-ns": row[name] }, duration(row[name])) : undefined);
    replace(box, make("p", {}, told.headline || told.text), figure, table(rows, told.columns, { cell, label: "Differences; they sum to the whole" }));
    askText(`${of(store)}/analysis/diff.svg`, query, "picture").then((text) => replace(figure, drawing(text)), (error) => replace(figure, failure(error)));
  } catch (error) {
    if (error.name !== "AbortError") replace(box, failure(error));
  }
}
