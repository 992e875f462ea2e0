// A window: one lane per worker, to be moved and zoomed; a click says all of an activity.

import { showActivity } from "./activity.js";
import { failure, make, replace, watchWidth } from "./dom.js";
import { duration, operatorName, percent, spaced, workerName } from "./format.js";
import { listen, messagesNear } from "./gestures.js";
import { Lanes, legend } from "./lanes.js";
import { longestActivities, longestSteps } from "./longest.js";
import { hear } from "./news.js";
import { list, note, windowName, windowOf } from "./place.js";
import { ask, of, runFacts } from "./server.js";
import { texts } from "./texts.js";
import { limits } from "./transport.js";
import { latest, settled, View } from "./view.js";
import { ways } from "./ways.js";
import { showWhy } from "./why.js";

const WIDEST = 4000; // pixels
const REST_MS = 150;
const HIDEABLE = ["waiting", "busy", "spinning"];

export async function show(stage, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = windowOf(given, run);
  // The path and the lanes are asked for side by side, where it is known already what the window is.
  const asked = ask(`${of(store)}/path`, { ...window, pixels: 2000 }, "path of a window");
  asked.catch(() => null);
  const whole = boundsOf(run, window) ?? boundsOf(run, { from: (await asked).start_ns, to: (await asked).end_ns });
  const page = { store, run, window, whole, asked, end_ns: run.end_ns, signal: stage.signal, drawn: 0 };
  page.canvas = make("canvas", { id: "lanes", tabindex: 0, role: "application", "aria-roledescription": "lanes", "aria-label": "A lane per worker, the critical path in red. Arrow keys move, plus and minus zoom, 0 shows all; tables of the longest steps and activities follow." });
  page.lanes = new Lanes(page.canvas, run);
  const first = given.view_from === undefined ? whole : { from: Number(given.view_from), to: Number(given.view_to) };
  page.view = page.lanes.view = new View({ ...limits(run, whole) }, first, () => moved(page));
  page.details = make("div", { class: "panel", id: "details" }, make("h2", {}, "Nothing is chosen"), make("p", { class: "faint" }, "Click an activity in a lane, or in the tables: its slack, what it waited for, and what led to it. This window elsewhere:"), texts(run, window));
  page.told = make("div", { class: "panel", id: "why" });
  page.heading = make("h1", {}, `${windowName(window)} of ${run.title}`);
  for (const [name, tag, attributes] of [["largest", "div", {}], ["steps", "div", {}], ["legend", "p", { class: "legend" }], ["status", "span", { class: "faint" }], ["byType", "p", { class: "faint" }]]) page[name] = make(tag, { id: name === "byType" ? "by-type" : name, ...attributes });
  page.load = latest(() => load(page));
  page.rest = settled(() => atRest(page), REST_MS);
  lookAt(page, given);
  const tip = listenToPointer(page);
  stage.draw(
    `pag: ${windowName(window)} of ${run.title}`, page.heading, ways("window", { store, ...window }), page.byType,
    controls(page, given), page.canvas, page.legend,
    make("p", { class: "faint hint" }, "Drag or ← → to move, wheel or + − to zoom, 0 for the whole window; click an activity for all about it."),
    make("div", { class: "columns" }, make("div", {}, page.steps, page.details, page.largest), page.told), tip,
  );
  page.lanes.draw();
  await Promise.all([page.load(), showPath(page)]);
  atRest(page);
  const [worker, position] = (given.at ?? "").split(".").map(Number);
  if (given.at && run.place.has(worker)) await showActivity(page.details, page.lanes, page, run.place.get(worker), position);
  showWhy(page.told, store, window);
  stayCurrent(page);
}

// What is known of a window before anything is asked: null for an epoch that is newer than what is known of the run.
function boundsOf(run, { epoch, from, to }) {
  if (from !== undefined) return { from: Number(from), to: Number(to) };
  const row = run.epochs.find((each) => each.epoch === Number(epoch));
  return row ? { from: row.start_ns, to: row.end_ns } : null;
}

async function showPath(page) {
  const { run, whole, view } = page;
  const path = await page.asked;
  const span = Math.max(path.span_ns, 1);
  page.heading.textContent = `${path.window} of ${run.title}: ${duration(path.span_ns)}`;
  page.byType.textContent = Object.entries(path.by_type).map(([kind, ns]) => `${percent(ns, span)} ${spaced(kind)}`).join(", ");
  replace(page.steps, longestSteps(run, path, whole, (begin, ns) => view.place(begin - ns / 2, 2 * ns)));
}

// Asks for what the view shows, as far as epochs are closed, and draws it.
async function load(page) {
  const { lanes, view, whole, window, store } = page;
  const shown = { from: Math.floor(view.from), to: Math.min(Math.ceil(view.to), page.end_ns) };
  if (page.signal.aborted || shown.to <= shown.from) return;
  const pixels = Math.min(Math.max(Math.round((lanes.width * (shown.to - shown.from)) / view.span), 1), WIDEST);
  const all = shown.from === whole.from && shown.to === whole.to;
  const path = all ? page.asked : ask(`${of(store)}/path`, { ...window, view_from: shown.from, view_to: shown.to, pixels }, "path");
  const boxes = ask(`${of(store)}/lanes`, { ...shown, pixels }, "lanes").then((picture) => {
    page.picture = { ...picture, shown };
    lanes.boxes = picture.boxes;
    lanes.messages = picture.exact ? picture.messages : null;
    lanes.soon();
  });
  const asked = performance.now();
  try {
    lanes.steps = (await Promise.all([path, boxes]))[0].steps;
    lanes.soon();
    page.drawn += 1;
    page.canvas.dataset.drawn = String(page.drawn);
    page.canvas.dataset.ms = String(Math.round(performance.now() - asked));
  } catch (error) {
    if (error.name !== "AbortError") replace(page.details, failure(error));
  }
}

function moved(page) {
  page.lanes.soon();
  page.load();
  page.rest();
}

// What follows a view when it has come to rest: the address, words, and the table of what is seen.
function atRest(page) {
  const { lanes, view, whole, picture } = page;
  if (page.signal.aborted || !picture) return;
  if (view.from !== whole.from || view.to !== whole.to || "viewed" in page) {
    page.viewed = true;
    note({ view_from: Math.floor(view.from), view_to: Math.ceil(view.to) });
  }
  const span = duration(picture.shown.to - picture.shown.from);
  page.status.textContent = picture.exact ? `${span} in view${picture.note ?? ""}` : `an overview of ${span}: zoom in for messages`;
  replace(page.legend, legend(lanes));
  listActivities(page);
}

function listActivities(page) {
  if (!page.lanes.boxes) return;
  replace(page.largest, longestActivities(page.run, page.lanes, (place, position) => showActivity(page.details, page.lanes, page, place, position)));
}

// What the address says of the look of the lanes.
function lookAt({ lanes: { look }, run }, given) {
  look.colour = given.colour ?? "type";
  look.hidden = new Set(list(given.hide));
  if (given.worker !== undefined) look.workers = list(given.worker).map((number) => run.place.get(Number(number))).filter((place) => place !== undefined);
  look.operators = operatorsLike(run, given.find ?? "");
}

function operatorsLike(run, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  return new Set(run.operators.filter((row) => `${row.name} ${row.address} ${row.operator}`.toLowerCase().includes(wanted)).map((row) => row.operator));
}

function controls(page, given) {
  const { lanes, run, view, whole } = page;
  const { look } = lanes;
  const changed = (changes) => {
    note(changes);
    lanes.soon();
    listActivities(page);
    if (lanes.boxes) replace(page.legend, legend(lanes));
  };
  const option = (value, words, selected) => make("option", { value, selected }, words);
  const colour = make("select", { "aria-label": "Colours", id: "colour", onchange: ({ target }) => { look.colour = target.value; changed({ colour: target.value }); } }, ["type", "operator"].map((name) => option(name, `colours by ${name}`, name === look.colour)));
  const workers = make("select", { "aria-label": "Workers", id: "workers", onchange: ({ target }) => { look.workers = target.value === "" ? null : [run.place.get(Number(target.value))]; changed({ worker: target.value }); } }, option("", "all workers"), run.workers.map(({ worker }, place) => option(worker, workerName(run, place), look.workers?.[0] === place)));
  const hide = HIDEABLE.map((kind) => make("button", { type: "button", "aria-pressed": look.hidden.has(kind), id: `hide-${kind}`, onclick: ({ target }) => { look.hidden.has(kind) ? look.hidden.delete(kind) : look.hidden.add(kind); target.setAttribute("aria-pressed", look.hidden.has(kind)); changed({ hide: [...look.hidden] }); } }, `hide ${kind}`));
  const find = make("input", { type: "search", placeholder: "find an operator", "aria-label": "Find an operator", id: "find", value: given.find ?? "", oninput: ({ target }) => { look.operators = operatorsLike(run, target.value); changed({ find: target.value }); } });
  const buttons = [["zoom-in", "+", "Zoom in", () => view.zoom(1 / 1.5, view.middle)], ["zoom-out", "−", "Zoom out", () => view.zoom(1.5, view.middle)], ["whole", "whole window", null, () => view.place(whole.from, whole.to - whole.from)]];
  return make("div", { class: "bar" }, colour, workers, hide, find, buttons.map(([id, words, label, onclick]) => make("button", { type: "button", id, title: label, "aria-label": label, onclick }, words)), page.status);
}

function listenToPointer(page) {
  const { lanes, view, run, store } = page;
  const tip = make("div", { class: "tip", hidden: true });
  const near = messagesNear(lanes, view, async (lane, t, width) => (await ask(`${of(store)}/near`, { worker: run.workers[lane].worker, t, width }, "near")).messages);
  listen(lanes, view, page.whole, {
    choose: (place, position) => showActivity(page.details, lanes, page, place, position),
    hover: (lane, box, { offsetX, clientX, clientY }) => {
      near(lane, offsetX);
      tip.hidden = box === null;
      if (box === null) return;
      const { begin, end, kind, operator, count } = lanes.boxes;
      const more = count[box] > 1 ? `, ${count[box].toLocaleString("en")} activities` : "";
      tip.textContent = `${spaced(run.kinds[kind[box]])} ${duration(end[box] - begin[box])}${more} ${operatorName(run, operator[box])}`;
      tip.style.setProperty("left", `${Math.min(clientX + 14, innerWidth - 300)}px`);
      tip.style.setProperty("top", `${clientY + 14}px`);
    },
  });
  return tip;
}

// A run that is followed goes on to the right of its closed epochs, and can be looked at there.
function stayCurrent(page) {
  const { lanes, view, run, signal } = page;
  hear("ongoing", (now) => {
    lanes.ongoing = now.complete ? null : now;
    view.limits.to = Math.max(view.limits.to, now.complete ? 0 : now.as_of_ns);
    page.canvas.dataset.ongoing = lanes.ongoing ? String(now.as_of_ns) : "";
    lanes.soon();
    page.rest();
  }, signal);
  hear("commit", ({ end_ns: end }) => {
    const seen = view.to > page.end_ns;
    page.end_ns = Math.max(end, run.end_ns);
    view.limits.to = Math.max(view.limits.to, page.end_ns);
    if (seen) page.load().then(page.rest);
  }, signal);
  watchWidth(page.canvas, () => page.canvas.clientWidth === lanes.wide || moved(page), signal);
}
