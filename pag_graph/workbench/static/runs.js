// All runs of the folders that are served.

import { make, replace, table } from "./dom.js";
import { duration } from "./format.js";
import { go } from "./place.js";
import { ask } from "./server.js";

export async function show(main) {
  const { runs, applications } = await ask("/api/runs");
  document.title = "pag: runs";
  if (!runs.length && !applications.length) {
    replace(main, make("h1", {}, "No runs here"), make("p", {}, "Build one: pag build run.trace run.pag"), make("p", {}, "Or give event logs of Spark: pag serve eventlogs"));
    return;
  }
  const titles = { title: "run", slowest: "worst round", span_ns: "length", place: "folder", state: "state" };
  const columns = ["title", "system", "workers", "epochs", "events", "span_ns", "slowest", "state", "place"];
  const cell = (row, name) => {
    if (row.error && name === "state") return make("span", { class: "error" }, row.error);
    if (row.error) return undefined;
    if (name === "span_ns") return duration(row.span_ns);
    if (name === "slowest") return `epoch ${row.slowest} (${duration(row.slowest_ns)})`;
    if (name !== "state") return undefined;
    const { error, warning, info } = row.findings;
    return [row.live && "live", row.alerts && `${row.alerts} alert${row.alerts === 1 ? "" : "s"}`, error && `${error} errors`, warning && `${warning} warnings`, info && `${info} notes`].filter(Boolean).join(", ");
  };
  replace(
    main,
    make("h1", {}, `${runs.length} run${runs.length === 1 ? "" : "s"}`),
    runs.length ? table(runs, columns, { titles, cell, label: "Runs", pick: (row) => row.error || go("run", { store: row.store }) }) : null,
    applications.length ? [
      make("h2", {}, "Spark applications"),
      table(applications, ["title", "bytes", "in_progress", "place"], { titles: { title: "event log", in_progress: "still runs", place: "folder" }, label: "Spark applications", cell: (row, name) => (name === "in_progress" ? (row.in_progress ? "yes" : "") : undefined), pick: (row) => go("spark", { log: row.log }) }),
    ] : null,
  );
}
