// A run: every epoch as a column, stacked by what its critical path is made of; `why` of the choice beside it.

import { make, replace, table } from "./dom.js";
import { duration, ink, percent } from "./format.js";
import { go, note } from "./place.js";
import { ask, of, runFacts } from "./server.js";
import { ways } from "./ways.js";
import { showWhy } from "./why.js";

const HIGH = 240;
const LEFT = 56;

// Columns of the server, as one entry per epoch.
function byEpoch({ columns }) {
  const epochs = new Map();
  columns.epoch.forEach((epoch, row) => {
    if (!epochs.has(epoch)) {
      epochs.set(epoch, { epoch, start: columns.start_ns[row], end: columns.end_ns[row], types: new Map() });
    }
    epochs.get(epoch).types.set(columns.type[row], columns.duration_ns[row]);
  });
  return [...epochs.values()];
}

export async function show(main, given) {
  const store = given.store;
  const run = await runFacts(store);
  document.title = `pag: ${run.title}`;
  const epochs = byEpoch(await ask(`${of(store)}/epochs`));
  const canvas = make("canvas", {
    tabindex: 0, role: "img", height: HIGH,
    "aria-label": `Length of ${epochs.length} epochs by type of the critical path. Arrow keys choose one, Enter opens it.`,
  });
  const told = make("div", { class: "panel", id: "why", "aria-live": "polite" });
  const choiceBar = make("div", { class: "bar", id: "choice" });
  let index = epochs.findIndex(({ epoch }) => epoch === Number(given.epoch ?? run.slowest));
  let brushed = given.from === undefined ? null : [Number(given.from), Number(given.to)];

  const chosen = () => (brushed ? { from: brushed[0], to: brushed[1] } : { epoch: epochs[Math.max(index, 0)]?.epoch });

  function draw(brush = null) {
    const width = canvas.clientWidth;
    canvas.width = width * devicePixelRatio;
    canvas.height = HIGH * devicePixelRatio;
    const pen = canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.fillStyle = ink("ground");
    pen.fillRect(0, 0, width, HIGH);
    const most = Math.max(...epochs.map(({ start, end }) => end - start), 1);
    const wide = (width - LEFT - 8) / Math.max(epochs.length, 1);
    const high = HIGH - 30;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = ink("faint");
    pen.fillText(duration(most), 4, 16);
    pen.fillText("0", 4, high + 6);
    epochs.forEach(({ types }, place) => {
      let top = high + 6;
      for (const kind of run.kinds) {
        const size = ((types.get(kind) ?? 0) / most) * high;
        if (!size) continue;
        pen.fillStyle = run.colours[kind] ?? "#000000";
        pen.fillRect(LEFT + place * wide, top - size, Math.max(wide - (wide > 4 ? 1 : 0), 0.5), size);
        top -= size;
      }
    });
    pen.strokeStyle = ink("path");
    pen.lineWidth = 2;
    if (!brushed && index >= 0) pen.strokeRect(LEFT + index * wide - 1, 4, Math.max(wide, 3), high + 4);
    if (brush) pen.strokeRect(Math.min(...brush), 4, Math.abs(brush[1] - brush[0]), high + 4);
    pen.fillStyle = ink("ink");
    const step = Math.max(1, Math.ceil(60 / wide));
    for (let place = 0; place < epochs.length; place += step) {
      pen.fillText(String(epochs[place].epoch), LEFT + place * wide, HIGH - 8);
    }
  }

  const at = (event) => {
    const wide = (canvas.clientWidth - LEFT - 8) / Math.max(epochs.length, 1);
    const place = Math.floor((event.offsetX - LEFT) / wide);
    return Math.min(Math.max(place, 0), epochs.length - 1);
  };

  function choose() {
    const window = chosen();
    note({ epoch: undefined, from: undefined, to: undefined, ...window });
    const here = { store, ...window };
    const words = brushed
      ? `${duration(brushed[0])} to ${duration(brushed[1])} (${duration(brushed[1] - brushed[0])})`
      : `Epoch ${window.epoch}: ${duration(epochs[index].end - epochs[index].start)}`;
    replace(
      choiceBar,
      make("strong", {}, words),
      ways("run", here),
    );
    draw();
    showWhy(told, store, window);
  }

  let pressed = null;
  canvas.addEventListener("pointerdown", (event) => {
    pressed = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => pressed !== null && draw([pressed, event.offsetX]));
  canvas.addEventListener("pointerup", (event) => {
    if (pressed === null) return;
    const first = at({ offsetX: Math.min(pressed, event.offsetX) });
    const last = at({ offsetX: Math.max(pressed, event.offsetX) });
    pressed = null;
    brushed = first === last || !run.aligned ? null : [epochs[first].start, epochs[last].end];
    index = at(event);
    choose();
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (step) {
      index = Math.min(Math.max(index + step, 0), epochs.length - 1);
      brushed = null;
      choose();
      event.preventDefault();
    } else if (event.key === "Enter") go("window", { store, ...chosen() });
  });

  const legend = make("p", { class: "legend" }, run.kinds.filter((kind) => epochs.some(({ types }) => types.get(kind))).map((kind) => swatch(kind, run.colours[kind])));
  const slowest = [...epochs].sort((a, b) => b.end - b.start - (a.end - a.start)).slice(0, 10);
  const rows = slowest.map((each) => {
    const [kind, ns] = [...each.types].sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
    return { epoch: each.epoch, length: duration(each.end - each.start), "most of its path": `${kind} (${percent(ns, each.end - each.start)})` };
  });
  replace(
    main,
    make("h1", {}, run.title),
    make("p", { class: "faint" }, `${run.rules}, ${run.workers.length} workers, ${epochs.length} epochs, ${duration(run.end_ns)}`),
    make("div", { class: "columns" },
      make("div", {},
        canvas, legend, choiceBar,
        make("h2", {}, "Slowest epochs"),
        table(rows, ["epoch", "length", "most of its path"], {
          label: "Slowest epochs",
          pick: (row) => {
            index = epochs.findIndex(({ epoch }) => epoch === row.epoch);
            brushed = null;
            choose();
          },
        }),
        run.findings.length ? make("h2", {}, "Findings") : null,
        run.findings.length ? table(run.findings, ["finding", "severity", "worker", "observed", "limit", "unit", "action"].filter((name) => name in run.findings[0]), { label: "Findings" }) : null,
      ),
      told,
    ),
  );
  choose();
  const redraw = new ResizeObserver(() => draw());
  redraw.observe(canvas);
  return () => redraw.disconnect();
}

export function swatch(name, colour) {
  const box = make("canvas", { width: 12, height: 12, "aria-hidden": "true" });
  const pen = box.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 12, 12);
  return make("span", {}, box, name.replaceAll("_", " "));
}
