// A run that is followed: how far its answers are, who holds the frontier, what goes on, and alerts.

import { make, replace, say, table } from "./dom.js";
import { duration, workerName } from "./format.js";
import { link } from "./place.js";

const named = (run, worker) => (run.place.has(worker) ? workerName(run, run.place.get(worker)) : `worker ${worker}`);

// Nothing here is final: it is what the follower saw when it looked last.
export function showOngoing(box, run, store, now) {
  box.hidden = false;
  box.dataset.epoch = String(now.epoch ?? "");
  const heading = now.complete ? "The run has ended" : now.epoch === null ? "No epoch goes on" : `Epoch ${now.epoch} goes on: ${duration(now.epoch_ns)} at least`;
  const rows = now.workers.map((row) => ({ ...row, holds: !now.complete && now.holder?.worker === row.worker ? "holds the frontier" : row.ended ? "has ended" : "" }));
  const cell = (row, name) => ({ worker: named(run, row.worker), logged: row.logged_ns === null ? "nothing" : duration(row.logged_ns), decided: row.decided_ns === null ? "" : duration(row.decided_ns) })[name];
  replace(
    box,
    make("h2", {}, heading),
    // What goes on is seen beside the last epochs that are closed.
    !now.complete && run.aligned && now.closed_ns > 0 ? make("p", {}, make("a", { id: "open-ongoing", class: "button", href: link("window", { store, ...lastEpoch(run, now), view_from: lastEpoch(run, now).from, view_to: now.as_of_ns }) }, "Look at it in the lanes")) : null,
    !now.complete && now.holder ? make("p", { class: "cause", id: "holder" }, `It waits for ${named(run, now.holder.worker)} since ${duration(now.holder.since_ns)}: ${now.why}.`) : null,
    make("p", { class: "faint", id: "lag" },
      `Logs go to ${duration(now.as_of_ns)}, answers to ${duration(now.closed_ns)}: ${duration(Math.max(now.as_of_ns - now.closed_ns, 0))} behind. `,
      now.lag_ns === null ? "" : `The last epoch was answered ${duration(now.lag_ns)} after its log was written. `,
      now.complete ? "" : `Seen ${duration(now.ago_ns)} ago. `,
      now.unread ? `${now.unread.toLocaleString("en")} messages are unread.` : "",
    ),
    now.complete ? null : table(rows, ["worker", "logged", "decided", "epoch", "holds"], { label: "How far each worker's log goes", titles: { logged: "log goes to", decided: "decided to", epoch: "in epoch", holds: "" }, cell }),
  );
}

const lastEpoch = (run, { closed_ns: closed, epoch_ns: ns }) => ({ from: Math.max(closed - Math.max(ns, 1e6), 0), to: closed });

export function showAlerts(box, store, alerts) {
  box.hidden = !alerts.length;
  const open = alerts.filter(({ event }) => event !== "resolved");
  const words = `${open.length} alert${open.length === 1 ? "" : "s"} open`;
  if (box.dataset.open !== String(open.length)) say(words);
  const rows = alerts.map((row) => ({ ...row, state: row.event === "resolved" ? `resolved in epoch ${row.epoch}` : "open" }));
  const cell = (row, name) => (name === "first_epoch" ? make("a", { href: link("window", { store, epoch: row.first_epoch }) }, `epoch ${row.first_epoch}`) : name === "state" ? make("span", { class: row.event === "resolved" ? "faint" : "error" }, row.state) : undefined);
  box.dataset.open = String(open.length);
  replace(
    box,
    make("h2", {}, words),
    table(rows, ["state", "severity", "rule", "subject", "first_epoch", "observed", "limit"], { label: "Alerts", titles: { first_epoch: "since", subject: "about" }, cell }),
  );
}
