// Analyses: each exactly as `pag NAME` answers it, with its picture and its rows to download.

import { drawing, failure, make, replace, table } from "./dom.js";
import { ServerError } from "./errors.js";
import { duration, operatorName } from "./format.js";
import { go, list, windowOf } from "./place.js";
import { ask, askText, of, runFacts } from "./server.js";
import { definitionOf, fileOf } from "./transport.js";
import { ways } from "./ways.js";

export async function show(stage, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = windowOf(given, run);
  const offered = run.analyses.filter(({ scope, met, name }) => met && scope !== "pair" && name !== "why" && name !== "what-if");
  const analysis = offered.find((each) => each.name === (given.name ?? "k-hops")) ?? (given.name === undefined ? offered[0] : null);
  if (!analysis) throw new ServerError(`${given.name} cannot be asked here.`, `${run.title} offers ${offered.map(({ name }) => name).join(", ")}.`);
  // What the analysis does not know, it refuses.
  const values = Object.fromEntries(Object.entries(given).filter(([key, value]) => key.startsWith("p.") && value !== "").map(([key, value]) => [key, list(value)]));
  const tabs = offered.map((each) => make("button", { type: "button", "aria-pressed": each.name === analysis.name, title: each.help, onclick: () => go("panels", { store, ...window, name: each.name }) }, each.name));
  const fields = analysis.parameters.map((parameter) => field(parameter, given[`p.${parameter.name}`]));
  const box = make("div", { id: "answer" }, make("p", { class: "faint" }, "Asking…"));
  const ownWindow = analysis.scope === "window" ? window : {};
  const query = { ...ownWindow, ...values };
  const forms = analysis.picture ? ["csv", "svg", "json"] : ["csv", "json"];
  const addresses = await Promise.all(forms.map((form) => fileOf(`${of(store)}/analysis/${analysis.name}.${form}`, query)));
  const files = forms.map((form, place) => addresses[place] && make("a", { href: addresses[place], download: form === "json" ? null : `${analysis.name}.${form}`, id: form }, form.toUpperCase()));
  const again = () => {
    const next = {};
    for (const input of stage.within("[data-parameter]")) next[`p.${input.dataset.parameter}`] = input.value.split("\n").filter(Boolean);
    go("panels", { store, ...window, name: analysis.name, ...next });
  };
  stage.draw(
    `pag: ${analysis.name} of ${run.title}`,
    make("h1", {}, `${analysis.name} of ${run.title}`),
    ways("panels", { store, ...window }),
    make("div", { class: "tabs", role: "group", "aria-label": "Analyses" }, tabs),
    make("p", {}, analysis.help),
    fields.length ? make("div", { class: "bar" }, fields, make("button", { type: "button", onclick: again }, "Ask")) : null,
    make("p", { class: "bar" }, files, definitionOf(analysis.name) && make("a", { href: definitionOf(analysis.name), id: "definition" }, "Definition"), make("span", { class: "faint" }, `pag ${analysis.name} --help`)),
    box,
  );
  try {
    const told = await ask(`${of(store)}/analysis/${analysis.name}.json`, query, "analysis");
    const rows = told[told.rows_name];
    const cell = (row, column) => (column === "operator" && typeof row.operator === "number" ? operatorName(run, row.operator) : column.endsWith("_ns") && typeof row[column] === "number" ? make("span", { title: `${row[column].toLocaleString("en")} ns`, "data-ns": row[column] }, duration(row[column])) : undefined);
    const figure = make("figure", {});
    replace(
      box,
      told.window ? make("h2", {}, `${told.window} (${duration(told.span_ns)})`) : null,
      told.headline ? make("p", {}, told.headline) : null,
      analysis.picture ? figure : null,
      make("p", { class: "faint" }, rows.length < told.count ? `The first ${rows.length} of ${told.count.toLocaleString("en")} rows; CSV has all.` : `${told.count.toLocaleString("en")} rows`),
      table(rows, told.columns, { cell, label: `Rows of ${analysis.name}` }),
    );
    if (analysis.picture) {
      askText(`${of(store)}/analysis/${analysis.name}.svg`, query, "picture").then((text) => replace(figure, drawing(text)), (error) => error.name !== "AbortError" && replace(figure, failure(error)));
    }
  } catch (error) {
    if (error.name !== "AbortError") replace(box, failure(error));
  }
}

function field({ name, help, choices, default: usual }, value) {
  const shown = value === undefined ? usual : value;
  const input = choices.length
    ? make("select", { "data-parameter": name }, make("option", { value: "" }, ""), choices.map((each) => make("option", { value: each, selected: each === shown }, each)))
    : make("input", { "data-parameter": name, size: 8, value: Array.isArray(shown) ? shown.join("\n") : String(shown ?? "") });
  return make("label", { class: "field", title: help }, name, input);
}
