// A run: every epoch as a column; `why` of the choice beside it. A run that is followed grows before one's eyes.

import { Columns, span } from "./columns.js";
import { make, replace, say, table, watchWidth } from "./dom.js";
import { ServerError } from "./errors.js";
import { duration, percent, spaced, swatch } from "./format.js";
import { showAlerts, showOngoing } from "./live.js";
import { hear } from "./news.js";
import { go, link, note } from "./place.js";
import { ask, of, runFacts } from "./server.js";
import { ways } from "./ways.js";
import { showWhy } from "./why.js";

const SLOWEST = 10;

// Columns of the server, as one entry per epoch.
function byEpoch({ columns }) {
  const epochs = new Map();
  columns.epoch.forEach((epoch, row) => {
    if (!epochs.has(epoch)) epochs.set(epoch, { epoch, start: columns.start_ns[row], end: columns.end_ns[row], types: {} });
    // An epoch that takes no time has a path of no type.
    if (columns.type[row] !== null) epochs.get(epoch).types[columns.type[row]] = columns.duration_ns[row];
  });
  return [...epochs.values()];
}

export async function show(stage, given) {
  const store = given.store;
  const run = await runFacts(store);
  const epochs = byEpoch(await ask(`${of(store)}/epochs`));
  if (given.epoch !== undefined && !epochs.some(({ epoch }) => epoch === Number(given.epoch))) {
    throw new ServerError(`${run.title} has no epoch ${given.epoch}.`, epochs.length ? `It has epochs ${epochs[0].epoch} to ${epochs.at(-1).epoch}.` : "None is closed yet.");
  }
  const canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "columns", id: "epochs" });
  const columns = new Columns(canvas, run, epochs);
  columns.index = epochs.findIndex(({ epoch }) => epoch === Number(given.epoch ?? run.slowest));
  columns.brushed = given.from === undefined ? null : [Number(given.from), Number(given.to)];
  const told = make("div", { class: "panel", id: "why" });
  const pages = make("div");
  const choiceBar = make("div", { class: "bar", id: "choice" });
  const facts = make("p", { class: "faint", id: "facts" });
  const legend = make("p", { class: "legend" });
  const slowest = make("div", { id: "slowest" });
  const ongoing = make("div", { class: "panel", id: "ongoing", hidden: true });
  const alerts = make("div", { class: "panel", id: "alerts", hidden: true });

  const chosen = () => (columns.brushed ? { from: columns.brushed[0], to: columns.brushed[1] } : { epoch: epochs[Math.max(columns.index, 0)]?.epoch });

  function choose(index, brushed = null) {
    if (!epochs.length) return;
    columns.index = Math.min(Math.max(index, 0), epochs.length - 1);
    columns.brushed = brushed;
    const window = chosen();
    note({ epoch: undefined, from: undefined, to: undefined, ...window });
    const words = brushed ? `${duration(brushed[0])} to ${duration(brushed[1])} (${duration(brushed[1] - brushed[0])})` : `Epoch ${window.epoch}: ${duration(span(epochs[columns.index]))}`;
    replace(pages, ways("run", { store, ...window }));
    replace(choiceBar, make("strong", {}, words), run.aligned ? make("a", { href: link("window", { store, ...window }), class: "button", id: "open-lanes" }, "Look into its lanes") : null);
    say(words);
    columns.draw();
    showWhy(told, store, window);
  }

  function summarise() {
    const last = epochs.at(-1);
    facts.textContent = `${run.rules}, ${run.workers.length} workers, ${epochs.length} epochs, ${duration(last ? last.end : run.end_ns)}`;
    canvas.setAttribute("aria-label", `Length of ${epochs.length} epochs by type of the critical path. Arrow keys choose one, Enter opens it.`);
    canvas.dataset.epochs = String(epochs.length);
    const seen = new Set(epochs.flatMap(({ types }) => Object.keys(types)));
    const marks = [columns.alerts.size && "▼ alert", columns.findings.size && "◆ finding"].filter(Boolean);
    replace(legend, run.kinds.filter((kind) => seen.has(kind)).map((kind) => swatch(spaced(kind), run.colours[kind])), marks.map((words) => make("span", {}, words)));
    const rows = slowestOf(epochs).map((each) => {
      const [kind, ns] = Object.entries(each.types).sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
      return { epoch: each.epoch, length: duration(span(each)), "most of its path": ns ? `${spaced(kind)} (${percent(ns, span(each))})` : "nothing" };
    });
    const pick = (row) => choose(epochs.findIndex(({ epoch }) => epoch === row.epoch));
    replace(slowest, make("h2", {}, "Slowest epochs"), table(rows, ["epoch", "length", "most of its path"], { label: "Slowest epochs", pick }));
    columns.draw();
  }

  listenToKeysAndPointer(columns, run, choose, () => go("window", { store, ...chosen() }));
  stage.draw(
    `pag: ${run.title}`,
    make("h1", {}, run.title), pages, facts,
    make("div", { class: "columns" },
      make("div", {},
        ongoing, canvas, legend,
        make("p", { class: "faint hint" }, "Click a column to see why that epoch took as long as it did; drag over several for all of them; double-click, or Enter, for the lanes of its workers."),
        choiceBar, alerts, slowest,
        findingsOf(run, (epoch) => choose(epochs.findIndex((each) => each.epoch === epoch))),
      ),
      told,
    ),
  );
  summarise();
  if (epochs.length) choose(columns.index, columns.brushed);
  else replace(told, make("p", { class: "faint" }, "No epoch is closed yet; each appears as soon as it is."));
  stayCurrent(columns, run, store, { ongoing, alerts, summarise }, stage.signal);
}

function findingsOf({ findings }, choose) {
  if (!findings.length) return null;
  const cell = (row, name) => (name === "finding" ? make("span", { class: "name" }, row.finding) : name === "epoch" && row.epoch !== null ? make("button", { type: "button", class: "row", onclick: () => choose(row.epoch) }, String(row.epoch)) : undefined);
  return [make("h2", {}, "Findings"), table(findings, ["finding", "severity", "epoch", "worker", "observed", "limit", "unit", "action"], { label: "Findings", cell })];
}

function slowestOf(epochs) {
  const kept = [];
  for (const epoch of epochs) {
    if (kept.length === SLOWEST && span(epoch) <= span(kept.at(-1))) continue;
    kept.push(epoch);
    kept.sort((a, b) => span(b) - span(a));
    kept.length = Math.min(kept.length, SLOWEST);
  }
  return kept;
}

function listenToKeysAndPointer(columns, run, choose, open) {
  const { canvas, epochs } = columns;
  let pressed = null;
  canvas.addEventListener("pointerdown", (event) => {
    pressed = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => pressed !== null && columns.draw([pressed, event.offsetX]));
  canvas.addEventListener("pointerup", (event) => {
    if (pressed === null) return;
    const [first, last] = [Math.min(pressed, event.offsetX), Math.max(pressed, event.offsetX)].map((x) => columns.at(x));
    pressed = null;
    choose(columns.at(event.offsetX), first === last || !run.aligned ? null : [epochs[first].start, epochs[last].end]);
  });
  canvas.addEventListener("dblclick", open);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -epochs.length, End: epochs.length }[event.key];
    if (step) {
      choose(columns.index + step);
      event.preventDefault();
    } else if (event.key === "Enter") open();
  });
}

// News are drawn once per frame at most, however many there are.
function stayCurrent(columns, run, store, { ongoing, alerts, summarise }, signal) {
  let frame = null;
  const soon = () => {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      summarise();
    });
  };
  hear("epoch", (epoch) => {
    if (epoch.epoch <= (columns.epochs.at(-1)?.epoch ?? -1)) return;
    columns.epochs.push(epoch);
    soon();
  }, signal);
  hear("ongoing", (now) => {
    columns.ongoing = now.complete || now.epoch === null ? null : { epoch: now.epoch, ns: now.epoch_ns };
    showOngoing(ongoing, run, store, now);
    soon();
  }, signal);
  hear("alerts", ({ alerts: rows }) => {
    columns.alerts = new Set(rows.map((row) => row.first_epoch));
    showAlerts(alerts, store, rows);
    soon();
  }, signal);
  watchWidth(columns.canvas, () => columns.draw(), signal);
  signal.addEventListener("abort", () => cancelAnimationFrame(frame));
}
