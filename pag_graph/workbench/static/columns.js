// Every epoch as a column, stacked by what its critical path is made of. Where there are more than the screen is wide,
// each pixel shows the longest of those that share it.

import { duration, ink } from "./format.js";

const HIGH = 240;
const LEFT = 56;
const RIGHT = 8;
const FOOT = 30;

export class Columns {
  constructor(canvas, run, epochs) {
    this.canvas = canvas;
    this.run = run;
    this.epochs = epochs;
    this.index = -1;
    this.brushed = null;
    this.alerts = new Set(); // epochs since which there are alerts
    this.findings = new Map(run.findings_of_epochs.map((row) => [row.epoch, row.severity]));
    this.ongoing = null; // what goes on: its epoch, and how long it has taken at least
    canvas.height = HIGH;
    canvas.addEventListener("recolour", () => this.draw());
  }

  get places() {
    return Math.max(this.epochs.length + (this.ongoing ? 1 : 0), 1);
  }

  get wide() {
    return (this.canvas.clientWidth - LEFT - RIGHT) / this.places;
  }

  // The place of the epoch that is drawn at some x.
  at(x) {
    const place = Math.min(Math.max(Math.floor((x - LEFT) / this.wide), 0), this.epochs.length - 1);
    return this.wide >= 1 ? place : this.#longest(Math.floor(place * this.wide));
  }

  #longest(pixel) {
    const first = Math.ceil(pixel / this.wide);
    let best = Math.min(first, this.epochs.length - 1);
    for (let place = first; place < Math.min((pixel + 1) / this.wide, this.epochs.length); place += 1) {
      if (span(this.epochs[place]) > span(this.epochs[best])) best = place;
    }
    return best;
  }

  *#drawn() {
    if (this.wide >= 1) {
      for (let place = 0; place < this.epochs.length; place += 1) yield [LEFT + place * this.wide, this.epochs[place]];
    } else {
      const last = Math.floor((this.epochs.length - 1) * this.wide);
      for (let pixel = 0; pixel <= last; pixel += 1) yield [LEFT + pixel, this.epochs[this.#longest(pixel)]];
    }
  }

  draw(brush = null) {
    const { canvas, wide, epochs } = this;
    const width = canvas.clientWidth;
    canvas.width = width * devicePixelRatio;
    canvas.height = HIGH * devicePixelRatio;
    const pen = canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.fillStyle = ink("ground");
    pen.fillRect(0, 0, width, HIGH);
    const most = epochs.reduce((longest, epoch) => Math.max(longest, span(epoch)), this.ongoing?.ns ?? 1);
    const high = HIGH - FOOT;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = ink("faint");
    pen.fillText(duration(most), 4, 16);
    pen.fillText("0", 4, high + 6);
    for (const [left, epoch] of this.#drawn()) this.#column(pen, left, epoch, high / most, high + 6);
    if (this.ongoing) this.#goesOn(pen, LEFT + epochs.length * wide, high / most, high + 6);
    pen.strokeStyle = ink("path");
    pen.lineWidth = 2;
    if (!this.brushed && this.index >= 0) pen.strokeRect(LEFT + this.index * wide - 1, 4, Math.max(wide, 3), high + 4);
    if (brush) pen.strokeRect(Math.min(...brush), 4, Math.abs(brush[1] - brush[0]), high + 4);
    pen.fillStyle = ink("ink");
    const step = Math.max(1, Math.ceil(60 / wide));
    for (let place = 0; place < epochs.length; place += step) pen.fillText(String(epochs[place].epoch), LEFT + place * wide, HIGH - 8);
  }

  #column(pen, left, { epoch, types }, scale, bottom) {
    const wide = Math.max(this.wide - (this.wide > 4 ? 1 : 0), 1);
    let top = bottom;
    for (const kind of this.run.kinds) {
      const size = (types[kind] ?? 0) * scale;
      if (!size) continue;
      pen.fillStyle = this.run.colours[kind] ?? "#000000";
      pen.fillRect(left, top - size, wide, size);
      top -= size;
    }
    const middle = left + wide / 2;
    if (this.alerts.has(epoch)) this.#mark(pen, "alarm", [[middle - 4, 2], [middle + 4, 2], [middle, 9]]);
    if (!this.findings.has(epoch)) return;
    const colour = this.findings.get(epoch) === "error" ? "alarm" : "ink";
    this.#mark(pen, colour, [[middle, bottom + 1], [middle + 4, bottom + 5], [middle, bottom + 9], [middle - 4, bottom + 5]]);
  }

  #mark(pen, colour, corners) {
    pen.fillStyle = ink(colour);
    pen.beginPath();
    for (const [x, y] of corners) pen.lineTo(x, y);
    pen.fill();
  }

  // What goes on is pale and dashed: it can only grow.
  #goesOn(pen, left, scale, bottom) {
    const size = Math.max(this.ongoing.ns * scale, 2);
    const wide = Math.max(this.wide - 1, 2);
    pen.globalAlpha = 0.35;
    pen.fillStyle = ink("faint");
    pen.fillRect(left, bottom - size, wide, size);
    pen.globalAlpha = 1;
    pen.setLineDash([3, 3]);
    pen.strokeStyle = ink("faint");
    pen.lineWidth = 1;
    pen.strokeRect(left, bottom - size, wide, size);
    pen.setLineDash([]);
  }
}

export const span = ({ start, end }) => end - start;
