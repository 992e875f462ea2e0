// All runs of the folders that are served. While one of them is followed, the list is looked at again.

import { make, replace, table } from "./dom.js";
import { duration } from "./format.js";
import { go } from "./place.js";
import { ask } from "./server.js";

const LOOK_MS = 5000;
const many = (count, name) => count > 0 && `${count} ${name}${count === 1 ? "" : "s"}`;

export async function show(stage) {
  let told = await ask("/api/runs");
  const list = make("div", {}, lists(told));
  stage.draw("pag: runs", list);
  const waiting = setInterval(async () => {
    if (document.hidden || !told.runs.some((row) => row.live)) return;
    const now = await ask("/api/runs", {}, "list of runs").catch(() => told);
    if (JSON.stringify(now) !== JSON.stringify(told)) keepingFocus(list, () => replace(list, lists(now)));
    told = now;
  }, LOOK_MS);
  stage.signal.addEventListener("abort", () => clearInterval(waiting));
}

// Whoever has come to a row by keyboard is in the same row afterwards.
function keepingFocus(list, draw) {
  const place = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  draw();
  list.querySelectorAll("button")[place]?.focus();
}

function lists({ runs, applications }) {
  if (!runs.length && !applications.length) {
    return [make("h1", {}, "No runs here"), make("p", {}, "Build one, and load this page again: ", make("code", {}, "pag build run.trace run.pag")), make("p", {}, "Or serve event logs of Spark: ", make("code", {}, "pag serve eventlogs"))];
  }
  const titles = { title: "run", slowest: "worst round", span_ns: "length", place: "folder" };
  const columns = ["title", "system", "workers", "epochs", "events", "span_ns", "slowest", "state", "place"];
  const cell = (row, name) => {
    if (row.error && name === "state") return make("span", { class: "error" }, row.error);
    if (row.error) return undefined;
    if (name === "span_ns") return duration(row.span_ns);
    if (name === "slowest") return `epoch ${row.slowest} (${duration(row.slowest_ns)})`;
    if (name !== "state") return undefined;
    const { error, warning, info } = row.findings;
    return [row.live && "live", many(row.alerts, "alert"), many(error, "error"), many(warning, "warning"), many(info, "note")].filter(Boolean).join(", ");
  };
  return [
    runs.length ? [
      make("h1", {}, many(runs.length, "run")),
      table(runs, columns, { titles, cell, label: "Runs", pick: (row) => row.error || go("run", { store: row.store }) }),
    ] : null,
    applications.length ? [
      make(runs.length ? "h2" : "h1", {}, "Spark applications"),
      table(applications, ["title", "bytes", "in_progress", "place"], { titles: { title: "event log", in_progress: "still runs", place: "folder" }, label: "Spark applications", cell: (row, name) => (name === "in_progress" ? (row.in_progress ? "yes" : "") : undefined), pick: (row) => go("spark", { log: row.log }) }),
    ] : null,
  ];
}
