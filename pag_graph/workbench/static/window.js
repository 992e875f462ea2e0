// A window: one lane per worker, to be moved and zoomed; a click says all of an activity.

import { failure, make, replace, table } from "./dom.js";
import { duration, ink, operatorName, percent, swatch, workerName } from "./format.js";
import { Lanes, LEFT } from "./lanes.js";
import { chosen, list, note } from "./place.js";
import { ask, of, runFacts } from "./server.js";
import { texts } from "./texts.js";
import { limits } from "./transport.js";
import { ways } from "./ways.js";
import { showWhy } from "./why.js";

const HOPS = 5;

export async function show(main, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = chosen(given);
  if (window.epoch === undefined && window.from === undefined) window.epoch = run.slowest;
  const first = await ask(`${of(store)}/path`, { ...window, pixels: 2000 });
  document.title = `pag: ${first.window} of ${run.title}`;
  const canvas = make("canvas", { id: "lanes", tabindex: 0, role: "img", "aria-label": `${first.window}: a lane per worker, the critical path in red. Arrow keys move, plus and minus zoom, 0 shows all.` });
  const lanes = new Lanes(canvas, run);
  const tip = make("div", { class: "tip", hidden: true });
  const details = make("div", { class: "panel", id: "details", "aria-live": "polite" }, make("p", { class: "faint" }, "Click an activity: its slack, what it waited for, and what led to it."), texts(run, window).flat());
  const told = make("div", { class: "panel", id: "why" });
  const largest = make("div", { id: "largest" });
  const legend = make("p", { class: "legend", id: "legend" });
  const status = make("span", { class: "faint", id: "status", role: "status" });
  const whole = { from: first.start_ns, to: first.end_ns };
  const most = limits(run, whole);
  lanes.view = given.view_from === undefined ? { ...whole } : { from: Number(given.view_from), to: Number(given.view_to) };
  lanes.look.colour = given.colour ?? "type";
  lanes.look.hidden = new Set(list(given.hide));
  if (given.worker !== undefined) lanes.look.workers = list(given.worker).map((number) => run.place.get(Number(number)));
  search(given.find ?? "");

  function search(text) {
    const wanted = text.trim().toLowerCase();
    lanes.look.operators = wanted ? new Set(run.operators.filter((row) => `${row.name} ${row.address} ${row.operator}`.toLowerCase().includes(wanted)).map((row) => row.operator)) : null;
  }

  let waiting = null;
  let drawn = 0;
  async function load() {
    const { from, to } = lanes.view;
    const view = { from: Math.floor(from), to: Math.ceil(to) };
    const pixels = Math.min(Math.max(Math.round(lanes.width), 1), 4000);
    const asked = performance.now();
    try {
      const [picture, path] = await Promise.all([
        ask(`${of(store)}/lanes`, { ...view, pixels }, "lanes"),
        ask(`${of(store)}/path`, { ...window, view_from: view.from, view_to: view.to, pixels }, "path"),
      ]);
      lanes.boxes = picture.boxes;
      lanes.messages = picture.exact ? picture.messages : null;
      lanes.steps = path.steps;
      lanes.draw();
      drawn += 1;
      canvas.dataset.drawn = String(drawn);
      canvas.dataset.ms = String(Math.round(performance.now() - asked));
      status.textContent = picture.exact ? `${picture.boxes.worker.length.toLocaleString("en")} boxes, ${duration(view.to - view.from)}${picture.note ?? ""}` : `an overview of ${duration(view.to - view.from)}: zoom in for messages`;
      const seen = new Set([...picture.boxes.kind, ...(picture.messages.kind ?? [])].map((kind) => run.kinds[kind]));
      replace(legend, run.kinds.filter((kind) => seen.has(kind)).map((kind) => swatch(kind, run.colours[kind])), swatch("critical path", ink("path")));
      list_largest();
    } catch (error) {
      if (error.name !== "AbortError") replace(details, failure(error));
    }
  }

  function moved() {
    lanes.draw();
    note({ view_from: Math.floor(lanes.view.from), view_to: Math.ceil(lanes.view.to) });
    clearTimeout(waiting);
    waiting = setTimeout(load, 30);
  }

  function zoom(factor, centre) {
    const { from, to } = lanes.view;
    const span = Math.min(Math.max((to - from) * factor, 20), most.to - most.from);
    const share = (centre - from) / (to - from);
    place(centre - span * share, span);
  }

  function place(from, span) {
    const begin = Math.min(Math.max(from, most.from), Math.max(most.to - span, most.from));
    lanes.view = { from: begin, to: Math.min(begin + span, most.to) };
    moved();
  }

  function list_largest() {
    const { worker, begin, end, kind, operator, count, position } = lanes.boxes;
    const order = worker.map((_, box) => box).filter((box) => position[box] >= 0 && !lanes.look.hidden.has(run.kinds[kind[box]]) && (!lanes.look.workers || lanes.look.workers.includes(worker[box])) && (!lanes.look.operators || lanes.look.operators.has(operator[box])));
    order.sort((a, b) => end[b] - begin[b] - (end[a] - begin[a]));
    const rows = order.slice(0, 12).map((box) => ({ box, worker: workerName(run, worker[box]), type: run.kinds[kind[box]], operator: operatorName(run, operator[box]), at: duration(begin[box]), length: duration(end[box] - begin[box]), count: count[box] }));
    replace(largest, make("h2", {}, "Longest activities in view"), table(rows, ["worker", "type", "operator", "at", "length"], { label: "Longest activities in view", pick: (row) => select(worker[row.box], position[row.box]) }));
  }

  // Who is to blame, and since when: the longest steps of the path, from its start on.
  function longestSteps() {
    const { begin, end, source, target, kind, operator } = first.steps;
    const order = begin.map((_, step) => step).sort((a, b) => end[b] - begin[b] - (end[a] - begin[a])).slice(0, 8);
    const rows = order.map((step) => ({ step, worker: source[step] === target[step] ? workerName(run, source[step]) : `${workerName(run, source[step])} to ${workerName(run, target[step])}`, type: kind[step].replaceAll("_", " "), operator: operatorName(run, operator[step]), since: `${duration(begin[step] - whole.from)} into the window`, took: duration(end[step] - begin[step]), share: percent(end[step] - begin[step], whole.to - whole.from) }));
    const pick = ({ step }) => place(begin[step] - (end[step] - begin[step]) / 2, 2 * (end[step] - begin[step]));
    return [make("h2", {}, "Longest steps of the critical path"), table(rows, ["worker", "type", "operator", "since", "took", "share"], { label: "Longest steps of the critical path", titles: { share: "of the window" }, pick })];
  }

  async function select(placeOf, position) {
    const worker = run.workers[placeOf].worker;
    note({ at: `${worker}.${position}` });
    replace(details, make("p", { class: "faint" }, "Looking…"));
    try {
      const told = await ask(`${of(store)}/activity`, { ...window, worker, position, hops: HOPS }, "activity");
      const { edge } = told;
      const own = { begin: edge.start_ns, end: edge.start_ns + edge.duration_ns, source: placeOf, target: placeOf };
      const causes = told.hops.map((row) => ({ begin: row.start_ns, end: row.start_ns + row.duration_ns, source: row.source, target: row.target, hop: row.hop }));
      lanes.lit = [...causes, own];
      lanes.draw();
      replace(
        details,
        make("h2", {}, `${edge.type.replaceAll("_", " ")} on ${workerName(run, placeOf)}`),
        make("dl", {},
          facts("operator", operatorName(run, edge.operator)), facts("took", duration(edge.duration_ns)),
          facts("from", `${edge.start_ns.toLocaleString("en")} ns (${duration(Math.max(edge.start_ns - whole.from, 0))} into the window)`), facts("slack", told.slack_ns === null ? "undefined here" : duration(told.slack_ns)),
          facts("records", edge.records), facts("waited for", told.ended_by.map((row) => `${row.type.replaceAll("_", " ")} from ${workerName(run, row.source)}, ${duration(row.duration_ns)} under way`).join("; ")),
        ),
        make("h3", {}, `Within ${HOPS} hops before its end`),
        table(told.hops, ["hop", "type", "from", "to", "operator", "took"], { label: "Hops", cell: (row, name) => ({ from: workerName(run, row.source), to: workerName(run, row.target), operator: operatorName(run, row.operator), took: duration(row.duration_ns) })[name] }),
        texts(run, window, told),
      );
    } catch (error) {
      if (error.name !== "AbortError") replace(details, failure(error));
    }
  }

  const facts = (name, value) => (value === null || value === undefined || value === "" ? [] : [make("dt", {}, name), make("dd", {}, String(value))]);

  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const span = lanes.view.to - lanes.view.from;
      place(lanes.view.from + ((event.deltaX || event.deltaY) / lanes.width) * span, span);
    } else zoom(event.deltaY > 0 ? 1.3 : 1 / 1.3, lanes.ns(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, view: { ...lanes.view }, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  let hovering = null;
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const span = drag.view.to - drag.view.from;
      drag.moved ||= Math.abs(event.offsetX - drag.x) > 3;
      if (drag.moved) place(drag.view.from - ((event.offsetX - drag.x) / lanes.width) * span, span);
      return;
    }
    hover(event);
  });
  canvas.addEventListener("pointerup", (event) => {
    const clicked = drag && !drag.moved;
    drag = null;
    if (!clicked || event.offsetX < LEFT) return;
    const lane = lanes.placeAt(event.offsetY);
    const box = lane === null ? null : lanes.boxAt(lane, lanes.ns(event.offsetX));
    if (box === null) return;
    if (lanes.boxes.position[box] >= 0) select(lane, lanes.boxes.position[box]);
    else zoom(0.1, lanes.ns(event.offsetX));
  });
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
    lanes.nearby = [];
    lanes.draw();
  });
  function hover(event) {
    const lane = event.offsetX < LEFT ? null : lanes.placeAt(event.offsetY);
    const box = lane === null ? null : lanes.boxAt(lane, lanes.ns(event.offsetX));
    tip.hidden = box === null;
    clearTimeout(hovering);
    if (lane === null) return;
    const t = Math.round(lanes.ns(event.offsetX));
    const width = Math.max(Math.round((6 * (lanes.view.to - lanes.view.from)) / lanes.width), 1);
    hovering = setTimeout(async () => {
      try {
        lanes.nearby = (await ask(`${of(store)}/near`, { worker: run.workers[lane].worker, t, width }, "near")).messages;
        lanes.draw();
      } catch {
        lanes.nearby = [];
      }
    }, 80);
    if (box === null) return;
    const { begin, end, kind, operator, count } = lanes.boxes;
    const more = count[box] > 1 ? `, ${count[box].toLocaleString("en")} activities` : "";
    tip.textContent = `${run.kinds[kind[box]].replaceAll("_", " ")} ${duration(end[box] - begin[box])}${more} ${operatorName(run, operator[box])}`;
    tip.style.setProperty("left", `${Math.min(event.clientX + 14, innerWidth - 300)}px`);
    tip.style.setProperty("top", `${event.clientY + 14}px`);
  }
  canvas.addEventListener("keydown", (event) => {
    const span = lanes.view.to - lanes.view.from;
    const centre = lanes.view.from + span / 2;
    const done = {
      ArrowLeft: () => place(lanes.view.from - span / 5, span), ArrowRight: () => place(lanes.view.from + span / 5, span),
      "+": () => zoom(1 / 1.5, centre), "=": () => zoom(1 / 1.5, centre), "-": () => zoom(1.5, centre), 0: () => place(whole.from, whole.to - whole.from),
    }[event.key];
    if (done) {
      done();
      event.preventDefault();
    }
  });

  const colour = make("select", { "aria-label": "Colours", id: "colour", onchange: (event) => { lanes.look.colour = event.target.value; note({ colour: event.target.value }); lanes.draw(); } }, ["type", "operator"].map((name) => make("option", { value: name, selected: name === lanes.look.colour }, `colours by ${name}`)));
  const workers = make("select", { "aria-label": "Workers", id: "workers", onchange: (event) => { const number = event.target.value; lanes.look.workers = number === "" ? null : [run.place.get(Number(number))]; note({ worker: number }); lanes.draw(); list_largest(); } }, make("option", { value: "" }, "all workers"), run.workers.map(({ worker }, index) => make("option", { value: worker, selected: lanes.look.workers?.[0] === index }, workerName(run, index))));
  const hide = ["waiting", "busy", "spinning"].map((kind) => make("button", { type: "button", "aria-pressed": lanes.look.hidden.has(kind), id: `hide-${kind}`, onclick: (event) => { const { hidden } = lanes.look; hidden.has(kind) ? hidden.delete(kind) : hidden.add(kind); event.target.setAttribute("aria-pressed", hidden.has(kind)); note({ hide: [...hidden] }); lanes.draw(); list_largest(); } }, `hide ${kind}`));
  const find = make("input", { type: "search", placeholder: "find an operator", "aria-label": "Find an operator", id: "find", value: given.find ?? "", oninput: (event) => { search(event.target.value); note({ find: event.target.value }); lanes.draw(); list_largest(); } });
  const here = { store, ...window };
  const total = Math.max(first.span_ns, 1);
  replace(
    main,
    make("h1", {}, `${first.window} of ${run.title}: ${duration(first.span_ns)}`),
    make("p", { class: "faint", id: "by-type" }, Object.entries(first.by_type).map(([kind, ns]) => `${percent(ns, total)} ${kind.replaceAll("_", " ")}`).join(", ")),
    make("div", { class: "bar" }, colour, workers, hide, find, make("button", { type: "button", onclick: () => place(whole.from, whole.to - whole.from) }, "whole window"), ways("window", here), status),
    canvas, legend,
    make("div", { class: "columns" }, make("div", {}, make("div", { id: "steps" }, longestSteps()), details, largest), told),
    tip,
  );
  await load();
  if (given.at) {
    const [worker, position] = given.at.split(".").map(Number);
    if (run.place.has(worker)) await select(run.place.get(worker), position);
  }
  showWhy(told, store, window);
  const redraw = new ResizeObserver(() => moved());
  redraw.observe(canvas.parentElement);
  return () => redraw.disconnect();
}
