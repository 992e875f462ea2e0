// All runs of the folders that are served.

import { make, replace, table } from "./dom.js";
import { duration } from "./format.js";
import { go } from "./place.js";
import { ask } from "./server.js";

export async function show(main) {
  const { runs } = await ask("/api/runs");
  document.title = "pag: runs";
  if (!runs.length) {
    replace(main, make("h1", {}, "No runs here"), make("p", {}, "Build one: pag build run.trace run.pag"));
    return;
  }
  const titles = { title: "run", slowest: "worst round", span_ns: "length", place: "folder", state: "findings" };
  const columns = ["title", "rules", "workers", "epochs", "events", "span_ns", "slowest", "state", "place"];
  const cell = (row, name) => {
    if (row.error && name === "state") return make("span", { class: "error" }, row.error);
    if (row.error) return undefined;
    if (name === "span_ns") return duration(row.span_ns);
    if (name === "slowest") return `epoch ${row.slowest} (${duration(row.slowest_ns)})`;
    if (name !== "state") return undefined;
    const { error, warning, info } = row.findings;
    return [error && `${error} errors`, warning && `${warning} warnings`, info && `${info} notes`].filter(Boolean).join(", ");
  };
  replace(
    main,
    make("h1", {}, `${runs.length} run${runs.length === 1 ? "" : "s"}`),
    table(runs, columns, { titles, cell, label: "Runs", pick: (row) => row.error || go("run", { store: row.store }) }),
  );
}
