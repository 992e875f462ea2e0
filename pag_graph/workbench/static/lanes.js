// Lanes of workers, drawn on a canvas: boxes, messages, the critical path, and what is lit up.

import { duration, ink, operatorColour, workerName } from "./format.js";

export const LEFT = 130;
const TOP = 22;
const LANE = 40;
const BOX = 18;
const RIGHT = 10;

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
    this.look = { colour: "type", hidden: new Set(), workers: null, operators: null, messages: true };
  }

  get places() {
    return this.look.workers ?? this.run.workers.map((_, place) => place);
  }

  get width() {
    return Math.max(this.canvas.clientWidth - LEFT - RIGHT, 1);
  }

  get high() {
    return TOP + this.places.length * LANE + 8;
  }

  x(ns) {
    const { from, to } = this.view;
    return LEFT + (Math.min(Math.max(ns, from), to) - from) / (to - from) * this.width;
  }

  ns(x) {
    const { from, to } = this.view;
    return from + (Math.min(Math.max(x, LEFT), LEFT + this.width) - LEFT) / this.width * (to - from);
  }

  placeAt(y) {
    const row = Math.floor((y - TOP) / LANE);
    return row >= 0 && row < this.places.length ? this.places[row] : null;
  }

  draw() {
    const { canvas, view } = this;
    const width = canvas.clientWidth;
    canvas.style.height = `${this.high}px`;
    canvas.width = width * devicePixelRatio;
    canvas.height = this.high * devicePixelRatio;
    const pen = canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.fillStyle = ink("ground");
    pen.fillRect(0, 0, width, this.high);
    pen.font = "11px system-ui, sans-serif";
    const lane = new Map(this.places.map((place, row) => [place, TOP + row * LANE]));
    this.#axis(pen, width, view);
    for (const [place, top] of lane) {
      pen.fillStyle = ink("ink");
      pen.fillText(fitting(pen, workerName(this.run, place), LEFT - 10), 4, top + 13);
    }
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.width, this.high);
    pen.clip();
    if (this.boxes) this.#boxes(pen, lane);
    if (this.messages && this.look.messages) this.#messages(pen, lane, this.messages, 0.9);
    this.#nearby(pen, lane);
    if (this.steps) this.#path(pen, lane);
    for (const lit of this.lit) this.#light(pen, lane, lit);
    pen.restore();
  }

  #axis(pen, width, { from, to }) {
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
    for (let box = 0; box < worker.length; box += 1) {
      const top = lane.get(worker[box]);
      const type = this.run.kinds[kind[box]];
      if (top === undefined || hidden.has(type)) continue;
      const left = this.x(begin[box]);
      pen.globalAlpha = operators && !operators.has(operator[box]) ? 0.15 : 1;
      pen.fillStyle = colour === "type" || operator[box] < 0 ? this.run.colours[type] ?? "#000000" : operatorColour(operator[box]);
      pen.fillRect(left, top, Math.max(this.x(end[box]) - left, 0.6), BOX);
    }
    pen.globalAlpha = 1;
  }

  #messages(pen, lane, { begin, end, source, target, kind }, thick) {
    for (let row = 0; row < begin.length; row += 1) {
      const [from, to] = [lane.get(source[row]), lane.get(target[row])];
      if (from === undefined || to === undefined) continue;
      pen.strokeStyle = this.run.colours[this.run.kinds[kind[row]]] ?? "#000000";
      pen.lineWidth = thick;
      pen.beginPath();
      pen.moveTo(this.x(begin[row]), from + BOX / 2);
      pen.lineTo(this.x(end[row]), to + BOX / 2);
      pen.stroke();
    }
  }

  #nearby(pen, lane) {
    const columns = { begin: [], end: [], source: [], target: [], kind: [] };
    for (const message of this.nearby) for (const name of Object.keys(columns)) columns[name].push(message[name]);
    pen.setLineDash([4, 3]);
    this.#messages(pen, lane, columns, 1.4);
    pen.setLineDash([]);
  }

  #path(pen, lane) {
    const { begin, end, source, target } = this.steps;
    pen.strokeStyle = ink("path");
    pen.lineWidth = 2.5;
    pen.lineJoin = "round";
    pen.beginPath();
    let drawn = false;
    for (let step = 0; step < begin.length; step += 1) {
      const [from, to] = [lane.get(source[step]), lane.get(target[step])];
      if (from === undefined || to === undefined) {
        drawn = false;
        continue;
      }
      if (drawn) pen.lineTo(this.x(begin[step]), from + BOX + 5);
      else pen.moveTo(this.x(begin[step]), from + BOX + 5);
      pen.lineTo(this.x(end[step]), to + BOX + 5);
      drawn = true;
    }
    pen.stroke();
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

function fitting(pen, text, width) {
  let shown = text;
  while (shown.length > 1 && pen.measureText(shown).width > width) shown = `${shown.slice(0, Math.max(shown.length - Math.max(2, shown.length >> 3), 1))}…`;
  return shown;
}
