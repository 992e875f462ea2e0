// All of an activity that is clicked: its slack, what it waited for, and what led to it, lit up in the lanes.

import { failure, make, readable, replace, say, table } from "./dom.js";
import { duration, operatorName, spaced, workerName } from "./format.js";
import { note } from "./place.js";
import { ask, of } from "./server.js";
import { texts } from "./texts.js";

const HOPS = 5;
const fact = (name, value) => (value === null || value === undefined || value === "" ? [] : [make("dt", {}, name), make("dd", {}, String(value))]);

export async function showActivity(box, lanes, { store, run, window, whole }, place, position) {
  const { worker } = run.workers[place];
  note({ at: `${worker}.${position}` });
  replace(box, make("p", { class: "faint" }, "Looking…"));
  try {
    const told = await ask(`${of(store)}/activity`, { ...window, worker, position, hops: HOPS }, "activity");
    const { edge } = told;
    const own = { begin: edge.start_ns, end: edge.start_ns + edge.duration_ns, source: place, target: place };
    lanes.lit = [...told.hops.map((row) => ({ begin: row.start_ns, end: row.start_ns + row.duration_ns, source: row.source, target: row.target, hop: row.hop })), own];
    lanes.soon();
    const enders = told.ended_by.map((row) => `${spaced(row.type)} from ${workerName(run, row.source)}, ${duration(row.duration_ns)} under way`);
    const logged = told.log.filter((row) => row.from_seq !== null).map((row) => `events ${row.from_seq} to ${row.to_seq} of ${workerName(run, place)}${row.file === null ? "" : `, ${readable(row.file)} rows ${row.from_row} to ${row.to_row}`}`);
    const heading = `${spaced(edge.type)} on ${workerName(run, place)}`;
    say(`${heading}, ${duration(edge.duration_ns)}`);
    replace(
      box,
      make("h2", {}, heading),
      make("dl", {},
        fact("operator", operatorName(run, edge.operator)), fact("took", duration(edge.duration_ns)),
        fact("from", `${duration(Math.max(edge.start_ns - whole.from, 0))} into the window (${edge.start_ns.toLocaleString("en")} ns)`),
        fact("slack", told.slack_ns === null ? "undefined here" : told.slack_ns === 0 ? "none: any delay of it delays the window's end" : `${duration(told.slack_ns)}: it could take so much longer`),
        fact("records", edge.records?.toLocaleString("en")), fact("waited for", enders.join("; ")),
        fact("its rows", logged.join("; ")), fact("its edge", `${edge.src} to ${edge.dst}`),
      ),
      make("h3", {}, `Within ${HOPS} hops before its end`),
      table(told.hops, ["hop", "type", "from", "to", "operator", "took"], { label: "Hops", cell: (row, name) => ({ type: spaced(row.type), from: workerName(run, row.source), to: workerName(run, row.target), operator: operatorName(run, row.operator), took: duration(row.duration_ns) })[name] }),
      texts(run, window, told),
    );
  } catch (error) {
    if (error.name !== "AbortError") replace(box, failure(error));
  }
}
