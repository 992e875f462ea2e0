// What if: sliders for operators, workers and links; the replayed length and path at once, as an interval.

import { failure, make, replace, say, table } from "./dom.js";
import { duration, operatorName, percent, spaced, workerName } from "./format.js";
import { list, note, windowName, windowOf, windowOption } from "./place.js";
import { ask, of, runFacts } from "./server.js";
import { quoted } from "./texts.js";
import { ways } from "./ways.js";

const SLIDERS = 8;
const WORKERS = 32;

export async function show(stage, given) {
  const store = given.store;
  const run = await runFacts(store);
  const window = windowOf(given, run);
  const box = make("div", { class: "panel", id: "answer" });
  const factors = new Map();
  for (const change of list(given.change)) {
    const [, what, factor] = /^(.*) factor=([\d.]+)$/.exec(change) ?? [];
    if (what) factors.set(what, Number(factor));
  }
  const path = await ask(`${of(store)}/analysis/profile.json`, window).catch(() => null);
  const share = new Map();
  for (const row of path?.[path.rows_name] ?? []) {
    if (row.operator !== null && row.operator !== undefined) share.set(row.operator, (share.get(row.operator) ?? 0) + (row.path_ns ?? row.duration_ns ?? 0));
  }
  const operators = [...run.operators].sort((a, b) => (share.get(b.operator) ?? 0) - (share.get(a.operator) ?? 0)).slice(0, SLIDERS);

  const changes = () => [...factors].filter(([, factor]) => factor !== 1).map(([what, factor]) => `${what} factor=${factor}`);

  function slider(what, words) {
    const shown = make("output", {}, `${factors.get(what) ?? 1} x`);
    const input = make("input", { type: "range", min: 0, max: 3, step: 0.1, value: factors.get(what) ?? 1, "aria-label": `${words}: times as long`, "data-change": what });
    let waiting = null;
    input.addEventListener("input", () => {
      factors.set(what, Number(input.value));
      shown.textContent = `${input.value} x`;
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        if (stage.signal.aborted) return;
        note({ change: changes() });
        replay();
      }, 150);
    });
    return make("label", { class: "field slider" }, input, shown, make("span", {}, words));
  }

  function reset() {
    factors.clear();
    for (const input of stage.within("[data-change]")) {
      input.value = 1;
      input.nextElementSibling.textContent = "1 x";
    }
    note({ change: [] });
    replay();
  }

  // The usual assumptions first, which take a fraction of the time; then all the others, for the interval.
  async function replay() {
    const query = { ...window, change: changes() };
    const part = (assumptions) => ask(`${of(store)}/what-if`, { ...query, assumptions }, "what-if");
    try {
      const told = await part("usual");
      showReplay(box, run, window, changes(), told, null);
      showReplay(box, run, window, changes(), told, await part("others"));
    } catch (error) {
      if (error.name !== "AbortError") replace(box, failure(error));
    }
  }

  stage.draw(
    `pag: what if, ${run.title}`,
    make("h1", {}, `What if: ${windowName(window)} of ${run.title}`),
    ways("what-if", { store, ...window }),
    make("p", { class: "faint hint" }, "How long would it take if something were faster or slower? Move a slider: 0.5 is half the time, 2 is twice."),
    make("div", { class: "sliders" },
      make("div", {},
        make("h2", {}, "Operators, most of the path first"), operators.map((row) => slider(`operator=${row.operator}`, operatorName(run, row.operator))),
        make("h2", {}, "Workers"), run.workers.slice(0, WORKERS).map((row, place) => slider(`worker=${row.worker}`, workerName(run, place))),
        make("h2", {}, "Messages"), run.workers.slice(0, WORKERS).map((row, place) => slider(`to=${row.worker}`, `to ${workerName(run, place)}`)),
        more(run),
        make("p", {}, make("button", { type: "button", id: "reset", onclick: reset }, "As it was")),
      ),
      box,
    ),
  );
  replay();
}

// What has no slider is said.
function more({ operators, workers }) {
  const left = [[operators.length - SLIDERS, "operators"], [workers.length - WORKERS, "workers"]].filter(([count]) => count > 0);
  return left.length ? make("p", { class: "faint hint" }, `${left.map(([count, name]) => `${count.toLocaleString("en")} more ${name}`).join(" and ")} have no slider here; pag what-if changes each.`) : null;
}

function showReplay(box, run, window, changes, told, others) {
  const [least, most] = [Math.min(told.least_ns, others?.least_ns ?? told.least_ns), Math.max(told.most_ns, others?.most_ns ?? told.most_ns)];
  const saved = told.span_ns - told.new_span_ns;
  const interval = others === null ? "Replaying the other assumptions…" : least === most ? "The same under every assumption about input and arrivals." : `From ${duration(least)} to ${duration(most)}, by what is assumed of input and of messages whose arrival nobody logged.`;
  const cell = (row, name) => (name.endsWith("_ns") && typeof row[name] === "number" ? duration(row[name]) : name === "operator" ? operatorName(run, row.operator) : name === "type" ? spaced(row.type) : undefined);
  const words = `${duration(told.span_ns)} would be ${duration(told.new_span_ns)}${saved ? ` (${saved > 0 ? "-" : "+"}${percent(Math.abs(saved), told.span_ns)})` : ""}`;
  if (others !== null) say(words);
  box.dataset.span = String(told.new_span_ns);
  box.dataset.interval = others === null ? "" : `${least} ${most}`;
  replace(
    box,
    make("h2", { id: "new-span" }, changes.length ? words : `${duration(told.span_ns)}, as it was`),
    make("p", {}, interval),
    make("p", { class: "faint" }, "Not modelled: batches keep their sizes, reads keep their order, and nobody competes for cores."),
    table(told.path, Object.keys(told.path[0] ?? {}), { label: "The path as it was and would be", titles: { recorded_ns: "was", new_ns: "would be", change_ns: "change" }, cell }),
    make("pre", {}, ["pag what-if", quoted(run.called), windowOption(window), ...changes.map((change) => `--change ${quoted(change)}`)].join(" ")),
  );
}
