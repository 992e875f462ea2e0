// Lanes of workers, drawn on a canvas: boxes, messages, the critical path, what is lit up, and what goes on.

import { make, watchWidth } from "./dom.js";
import { duration, ink, operatorColour, operatorName, spaced, swatch, workerName } from "./format.js";
import { ask, of } from "./server.js";

export const LEFT = 130;
const TOP = 22;
const LANE = 40;
const BOX = 18;
const RIGHT = 10;
const LOWEST = 8;
const PATH = 2.5; // pixels
const OPERATORS = 20; // of a legend

export class Lanes {
  constructor(canvas, run) {
    this.canvas = canvas;
    this.run = run;
    this.view = { from: 0, to: run.end_ns };
    this.boxes = null;
    this.messages = null;
    this.nearby = [];
    this.steps = null;
    this.lit = [];
    this.ongoing = null;
    this.look = { colour: "type", hidden: new Set(), workers: null, operators: null, messages: true };
    this.wide = 0;
    this.frame = null;
    this.names = new Map();
    canvas.addEventListener("recolour", () => this.draw());
  }

  get places() {
    return this.look.workers ?? this.run.workers.map((_, place) => place);
  }

  // How wide a lane is; as of the last drawing, for asking the page may have it laid out anew.
  get width() {
    return Math.max(this.wide - LEFT - RIGHT, 1);
  }

  get high() {
    return TOP + this.places.length * LANE + LOWEST;
  }

  x(ns) {
    const { from, to } = this.view;
    return LEFT + ((Math.min(Math.max(ns, from), to) - from) / (to - from)) * this.width;
  }

  ns(x) {
    const { from, to } = this.view;
    return from + ((Math.min(Math.max(x, LEFT), LEFT + this.width) - LEFT) / this.width) * (to - from);
  }

  placeAt(y) {
    const row = Math.floor((y - TOP) / LANE);
    return row >= 0 && row < this.places.length ? this.places[row] : null;
  }

  // Draws with the next frame, once, however often it is asked for.
  soon() {
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  // Where the page has other colours or another width, or is being printed, there may be no next frame to wait for.
  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    const pen = this.#blank();
    const lane = new Map(this.places.map((place, row) => [place, TOP + row * LANE]));
    this.#axis(pen);
    for (const [place, top] of lane) {
      pen.fillStyle = ink("ink");
      pen.fillText(this.#name(pen, place), 4, top + 13);
    }
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.width, this.high);
    pen.clip();
    if (this.boxes) this.#boxes(pen, lane);
    if (this.messages && this.look.messages) this.#messages(pen, lane, this.messages, 0.9);
    if (this.ongoing) this.#ongoing(pen, lane, this.ongoing);
    this.#nearby(pen, lane);
    if (this.steps) this.#path(pen, lane);
    for (const lit of this.lit) this.#light(pen, lane, lit);
    pen.restore();
  }

  // Shows a window that does not move, with its path, until the signal says stop.
  async still(store, path, view, signal) {
    this.view = view;
    this.steps = path.steps;
    this.look.messages = false;
    this.draw();
    const pixels = Math.max(Math.round((this.width * (path.end_ns - path.start_ns)) / (view.to - view.from)), 1);
    this.boxes = (await ask(`${of(store)}/lanes`, { from: path.start_ns, to: path.end_ns, pixels })).boxes;
    this.draw();
    if (!signal.aborted) watchWidth(this.canvas, () => this.canvas.clientWidth === this.wide || this.draw(), signal);
  }

  // An empty canvas of the right size; a size that is set anew has the page laid out anew, so it is set where it differs.
  #blank() {
    const { canvas, high } = this;
    this.wide = canvas.clientWidth;
    if (canvas.style.height !== `${high}px`) canvas.style.height = `${high}px`;
    const [width, height] = [Math.round(this.wide * devicePixelRatio), Math.round(high * devicePixelRatio)];
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    const pen = canvas.getContext("2d");
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.fillStyle = ink("ground");
    pen.fillRect(0, 0, this.wide, high);
    pen.font = "11px system-ui, sans-serif";
    return pen;
  }

  #name(pen, place) {
    if (!this.names.has(place)) this.names.set(place, fitting(pen, workerName(this.run, place), LEFT - 10));
    return this.names.get(place);
  }

  #axis(pen) {
    const { from, to } = this.view;
    const steps = 8;
    pen.fillStyle = ink("faint");
    pen.strokeStyle = ink("line");
    pen.lineWidth = 1;
    for (let step = 0; step <= steps; step += 1) {
      const x = LEFT + (this.width * step) / steps;
      pen.beginPath();
      pen.moveTo(x, TOP - 4);
      pen.lineTo(x, this.high);
      pen.stroke();
      if (step < steps) pen.fillText(duration(Math.round(from + ((to - from) * step) / steps)), x + 2, 12);
    }
  }

  #boxes(pen, lane) {
    const { worker, begin, end, kind, operator } = this.boxes;
    const { colour, hidden, operators } = this.look;
    let last = null;
    for (let box = 0; box < worker.length; box += 1) {
      const top = lane.get(worker[box]);
      const type = this.run.kinds[kind[box]];
      if (top === undefined || hidden.has(type)) continue;
      const left = this.x(begin[box]);
      const style = colour === "type" || operator[box] < 0 ? this.run.colours[type] ?? "#000000" : operatorColour(operator[box]);
      if (operators) pen.globalAlpha = operators.has(operator[box]) ? 1 : 0.15;
      if (style !== last) pen.fillStyle = last = style;
      pen.fillRect(left, top, Math.max(this.x(end[box]) - left, 0.6), BOX);
    }
    pen.globalAlpha = 1;
  }

  #messages(pen, lane, { begin, end, source, target, kind }, thick) {
    pen.lineWidth = thick;
    for (let row = 0; row < begin.length; row += 1) {
      const [from, to] = [lane.get(source[row]), lane.get(target[row])];
      if (from === undefined || to === undefined) continue;
      pen.strokeStyle = pen.fillStyle = this.run.colours[this.run.kinds[kind[row]]] ?? "#000000";
      line(pen, this.x(begin[row]), from + BOX / 2, this.x(end[row]), to + BOX / 2, thick);
    }
  }

  #nearby(pen, lane) {
    const columns = { begin: [], end: [], source: [], target: [], kind: [] };
    for (const message of this.nearby) for (const name of Object.keys(columns)) columns[name].push(message[name]);
    pen.setLineDash([4, 3]);
    this.#messages(pen, lane, columns, 1.4);
    pen.setLineDash([]);
  }

  // Of steps that share their pixel and their workers one is drawn; where some were left out, an upright line goes on.
  #path(pen, lane) {
    const { begin, end, source, target } = this.steps;
    pen.strokeStyle = pen.fillStyle = ink("path");
    pen.lineWidth = PATH;
    let last = {};
    for (let step = 0; step < begin.length; step += 1) {
      const [from, to] = [lane.get(source[step]), lane.get(target[step])];
      if (from === undefined || to === undefined) {
        last = {};
        continue;
      }
      const [left, right] = [this.x(begin[step]), this.x(end[step])];
      if (last.to !== undefined && last.to !== from) line(pen, left, last.to + BOX + 5, left, from + BOX + 5, PATH);
      const pixel = Math.floor(right);
      if (last.pixel === pixel && last.from === from && last.to === to && left >= pixel) continue;
      last = { pixel, from, to };
      line(pen, left, from + BOX + 5, right, to + BOX + 5, PATH);
    }
  }

  #light(pen, lane, { begin, end, source, target, hop = 0 }) {
    const [from, to] = [lane.get(source), lane.get(target)];
    if (from === undefined || to === undefined) return;
    pen.globalAlpha = Math.max(1 - hop * 0.07, 0.25);
    pen.strokeStyle = ink("ink");
    pen.lineWidth = hop ? 2 : 3;
    if (source === target) {
      const left = this.x(begin);
      pen.strokeRect(left, from - 1, Math.max(this.x(end) - left, 2), BOX + 2);
    } else {
      pen.beginPath();
      pen.moveTo(this.x(begin), from + BOX / 2);
      pen.lineTo(this.x(end), to + BOX / 2);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // What no closed epoch holds yet is pale, as far as its edges are certain; dashed, as far as the logs go.
  #ongoing(pen, lane, { closed_ns: closed, workers, holder }) {
    const left = this.x(closed);
    pen.globalAlpha = 0.6;
    pen.fillStyle = ink("ground");
    pen.fillRect(left, TOP - 4, LEFT + this.width - left, this.high);
    pen.globalAlpha = 1;
    pen.setLineDash([3, 3]);
    pen.lineWidth = 1;
    pen.strokeStyle = ink("faint");
    pen.strokeRect(left, TOP - 3, 0, this.high - TOP);
    for (const { worker, logged_ns: logged } of workers) {
      const top = lane.get(this.run.place.get(worker));
      if (top === undefined || logged === null || logged <= closed) continue;
      const right = this.x(logged);
      pen.strokeRect(left, top + 0.5, Math.max(right - left, 2), BOX - 1);
      if (holder?.worker !== worker) continue;
      const words = "holds the frontier";
      pen.fillStyle = ink("alarm");
      pen.fillText(words, Math.max(right - pen.measureText(words).width - 4, LEFT + 4), top + BOX + 12);
    }
    pen.setLineDash([]);
  }

  // The box of a lane at an instant; of those that are hidden none.
  boxAt(place, ns) {
    if (!this.boxes) return null;
    const { worker, begin, end, kind } = this.boxes;
    const slack = (this.view.to - this.view.from) / this.width;
    let best = null;
    for (let box = 0; box < worker.length; box += 1) {
      if (worker[box] !== place || this.look.hidden.has(this.run.kinds[kind[box]])) continue;
      if (begin[box] <= ns && ns < end[box]) return box;
      const away = Math.min(Math.abs(begin[box] - ns), Math.abs(end[box] - ns));
      if (away <= slack && (best === null || away < best.away)) best = { box, away };
    }
    return best?.box ?? null;
  }
}

// What the colours stand for.
export function legend({ run, boxes, messages, ongoing, look }) {
  const byOperator = look.colour === "operator";
  const kinds = boxes.kind.filter((_, box) => !byOperator || boxes.operator[box] < 0);
  const seen = new Set([...kinds, ...(messages?.kind ?? [])].map((kind) => run.kinds[kind]));
  const operators = byOperator ? [...new Set(boxes.operator)].filter((operator) => operator >= 0).sort((a, b) => a - b) : [];
  return [
    operators.slice(0, OPERATORS).map((operator) => swatch(operatorName(run, operator), operatorColour(operator))),
    operators.length > OPERATORS && make("span", {}, `and ${operators.length - OPERATORS} other operators`),
    run.kinds.filter((kind) => seen.has(kind)).map((kind) => swatch(spaced(kind), run.colours[kind])),
    swatch("critical path", "path"), ongoing && swatch("goes on", "faint"),
  ];
}

// A straight line. Level and upright ones, which are most, are rectangles: those are drawn several times as fast.
function line(pen, left, from, right, to, thick) {
  if (from === to) pen.fillRect(left - 0.5, from - thick / 2, Math.max(right - left, 1) + 1, thick);
  else if (right - left < 1) pen.fillRect(left - thick / 2, Math.min(from, to) - thick / 2, thick, Math.abs(to - from) + thick);
  else {
    pen.beginPath();
    pen.moveTo(left, from);
    pen.lineTo(right, to);
    pen.stroke();
  }
}

function fitting(pen, text, width) {
  let shown = text;
  while (shown.length > 1 && pen.measureText(shown).width > width) shown = `${shown.slice(0, Math.max(shown.length - Math.max(2, shown.length >> 3), 1))}…`;
  return shown;
}
