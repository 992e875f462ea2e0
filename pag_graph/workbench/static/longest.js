// The longest of what is seen, as tables: what one need not click in a drawing to find.

import { make, table } from "./dom.js";
import { duration, operatorName, percent, spaced, workerName } from "./format.js";

const STEPS = 8;
const ACTIVITIES = 12;

// Places of the longest, the longest first.
function longest({ begin, end }, count, takes = () => true) {
  const places = begin.map((_, place) => place).filter(takes);
  return places.sort((a, b) => end[b] - begin[b] - (end[a] - begin[a])).slice(0, count);
}

// Who is to blame, and since when: steps of the path. `pick` gets the beginning and the length of one.
export function longestSteps(run, { steps }, whole, pick) {
  const { begin, end, source, target, kind, operator } = steps;
  const rows = longest(steps, STEPS).map((step) => ({
    step, worker: source[step] === target[step] ? workerName(run, source[step]) : `${workerName(run, source[step])} to ${workerName(run, target[step])}`,
    type: spaced(kind[step]), operator: operatorName(run, operator[step]), since: `${duration(begin[step] - whole.from)} into the window`,
    took: duration(end[step] - begin[step]), share: percent(end[step] - begin[step], whole.to - whole.from),
  }));
  const options = { label: "Longest steps of the critical path", titles: { share: "of the window" }, pick: ({ step }) => pick(begin[step], end[step] - begin[step]) };
  return [make("h2", {}, "Longest steps of the critical path"), table(rows, ["worker", "type", "operator", "since", "took", "share"], options)];
}

// Activities that can be clicked. `pick` gets the place of the worker and the position of one.
export function longestActivities(run, { boxes, look }, pick) {
  const { worker, begin, end, kind, operator, position } = boxes;
  const shown = (box) => position[box] >= 0 && !look.hidden.has(run.kinds[kind[box]]) && (!look.workers || look.workers.includes(worker[box])) && (!look.operators || look.operators.has(operator[box]));
  const rows = longest(boxes, ACTIVITIES, shown).map((box) => ({ box, worker: workerName(run, worker[box]), type: spaced(run.kinds[kind[box]]), operator: operatorName(run, operator[box]), at: duration(begin[box]), length: duration(end[box] - begin[box]) }));
  const empty = "Nothing that could be told apart: zoom in, or show more workers and types.";
  return [make("h2", {}, "Longest activities in view"), rows.length ? table(rows, ["worker", "type", "operator", "at", "length"], { label: "Longest activities in view", pick: ({ box }) => pick(worker[box], position[box]) }) : make("p", { class: "faint" }, empty)];
}
