// A Spark application, as `pag spark` answers for its event log: verdict, causes, timeline with the path, plan, stages.

import { drawing, make, readable, table } from "./dom.js";
import { duration, spaced } from "./format.js";
import { ask } from "./server.js";
import { ways } from "./ways.js";

const MOST = 30;
const KINDS = { M: "measured, then replayed", B: "modelled" };
const share = (part) => `${(100 * part).toFixed(1)}%`;
const times = (row, name) => (typeof row[name] === "boolean" ? (row[name] ? "yes" : "no") : name.endsWith("_ns") && typeof row[name] === "number" ? make("span", { "data-ns": row[name] }, duration(row[name])) : name === "share" ? share(row.share) : undefined);

export async function show(stage, given) {
  stage.draw("pag: Spark application", make("p", { class: "faint" }, "Reading the log…"));
  const { facts, verdict, savings, svg, legend, store } = await ask(`/api/application/${encodeURIComponent(given.log)}`);
  const { application, path } = facts;
  const title = readable(application.name || application.id || facts.log);
  const figure = make("figure", { id: "timeline" }, drawing(svg));
  stage.draw(
    `pag: ${title}`,
    make("h1", {}, title),
    make("p", { class: "faint hint" }, "The graph of this application, with its lanes, analyses, replays and motifs:"), ways(null, { store }),
    make("p", { class: "faint" }, `${readable(facts.log)}, Spark ${readable(application.spark ?? "?")}: ${duration(facts.span_ns)}, of which ${duration(facts.before_first_job_ns)} before the first job.${application.complete ? "" : " The log does not have the application's end."}`),
    facts.causes.length ? make("p", { class: "cause alarm", id: "verdict" }, `${facts.causes[0].title}: ${savings[0]}. ${verdict.join(" ")}`) : make("p", { class: "cause", id: "verdict" }, verdict.join(" ")),
    facts.causes.length ? [make("h2", {}, "Causes, and what they would save"), causes(facts.causes, savings)] : null,
    facts.minor?.length ? make("p", { class: "faint" }, `Also seen, each too little to matter: ${facts.minor.map(({ text }) => text).join("; ")}`) : null,
    make("h2", {}, "Timeline of the executors, with the critical path"), figure, make("p", { class: "faint" }, legend),
    make("h2", {}, "Where the critical path was"),
    make("div", { class: "shares" }, Object.keys(path).filter((name) => name.startsWith("by_")).map((name) => table(path[name].slice(0, MOST), ["key", "path_ns", "share"], { label: `The path by ${name.slice(3)}`, titles: { key: name.slice(3), path_ns: "time", share: "of the path" }, cell: times }))),
    facts.plan_nodes.length ? [make("h2", {}, "The plan, with its time on the path"), table(facts.plan_nodes.slice(0, MOST), ["query", "name", "path_ns", "task_ns", "measured"], { label: "Plan nodes", titles: { name: "plan node", path_ns: "time on the path", task_ns: "time of all tasks", measured: "measured apart" }, cell: times })] : null,
    make("h2", {}, "What if"),
    table(facts.what_if.changes, Object.keys(facts.what_if.changes[0] ?? {}).filter((name) => typeof facts.what_if.changes[0][name] !== "object"), { label: "Changes, replayed", titles: { saved_low_ns: "saves at least", saved_high_ns: "saves at most" }, cell: times }),
    make("h2", {}, "Stages"),
    table([...facts.stages].sort((a, b) => b.busy_ns - a.busy_ns).slice(0, MOST), ["stage", "stage_attempt", "tasks", "failed", "busy_ns", "median_ns", "max_ns", "gc_ns", "read_bytes", "spilled_bytes"], { label: "Stages", titles: { stage_attempt: "attempt", failed: "failed tasks", busy_ns: "time of all tasks", median_ns: "median task", max_ns: "longest task", gc_ns: "garbage collection", read_bytes: "bytes read", spilled_bytes: "bytes spilled" }, cell: times }),
    Object.keys(facts.findings).length ? [make("h2", {}, "What is odd about the log"), make("ul", {}, Object.entries(facts.findings).map(([name, count]) => make("li", {}, `${count} x ${spaced(readable(name))}`)))] : null,
  );
}

function causes(rows, savings) {
  return make("ol", { id: "causes" }, rows.map((cause, place) => make(
    "li", {}, make("strong", {}, cause.title), `: ${savings[place]}, ${KINDS[cause.class] ?? cause.class}. ${cause.text} `,
    make("span", { class: "faint" }, [cause.advice, ...cause.traps].join(" ")),
    cause.changes.length ? table(cause.changes, Object.keys(cause.changes[0]).filter((name) => typeof cause.changes[0][name] !== "object" || cause.changes[0][name] === null), { label: `What to change about: ${cause.title}` }) : null,
  )));
}
