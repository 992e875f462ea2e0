//! How many nodes of a changing random graph have how many edges (Differential), under a load that you choose.
//!
//! An input is `batch` edges that go and as many that come, on each worker. With `--period` it is an open loop: inputs
//! are due by the clock, and given when they are due, or as soon as the worker can. Without it, the loop is closed: an
//! input is given when the one before is done.

mod common;

use std::time::{Duration, Instant};

use common::{Arguments, Size, random};
use differential_dataflow::input::Input;
use pag_timely::Schedule;
use timely::dataflow::operators::{Exchange, Inspect, Probe};

fn main() {
    let sizes = [
        Size("nodes", 10_000, "nodes of the graph"),
        Size("edges", 50_000, "edges of the graph"),
        Size("batch", 10, "edges that come and go with an input, on each worker"),
        Size("inputs", 1_000, "inputs of each worker, after the edges of the graph"),
        Size("period", 0, "microseconds from one input to the next; 0: when the input before is done"),
    ];
    let arguments = Arguments::parse("Degrees of the nodes of a changing graph.", 2, &sizes);
    arguments.run(|worker, run| {
        let [nodes, edges, batch, inputs, period] =
            ["nodes", "edges", "batch", "inputs", "period"].map(|name| run.arguments.size(name));
        let collect = run.collector();
        let (mut graph, probe) = worker.dataflow::<u64, _, _>(|scope| {
            let (graph, edge) = scope.new_collection::<(u64, u64), isize>();
            let degrees = edge.map(|(source, _)| source).count().map(|(_, degree)| degree).count();
            let results = degrees.inner.exchange(|_| 0).inspect(move |((degree, nodes), input, count)| {
                collect(*degree as u64 ^ (*nodes as u64) << 20 ^ *input << 40 ^ (*count as u64) << 8);
            });
            (graph, results.probe().0)
        });
        let (index, peers) = (worker.index() as u64, worker.peers() as u64);
        let edge = |n: u64| {
            let bits = random(run.arguments.seed, n);
            ((bits >> 32) % nodes, (bits & 0xffff_ffff) % nodes)
        };
        (index..edges).step_by(peers as usize).for_each(|n| graph.insert(edge(n)));
        graph.advance_to(1);
        graph.flush();
        run.steps(worker, || probe.less_than(&1));
        run.tick();

        let period = Duration::from_micros(period);
        let schedule = if period.is_zero() { Schedule::closed(inputs) } else { Schedule::every(period, inputs) };
        let (log, begun) = (run.inputs(schedule), Instant::now());
        let (mut given, mut done) = (0, 0);
        while done < inputs {
            let due = match period.as_nanos() as u64 {
                0 => done + 1,
                period => begun.elapsed().as_nanos() as u64 / period + 1,
            };
            while given < due.min(inputs) {
                for n in 0..batch {
                    let gone = (given * batch + n) * peers + index;
                    graph.remove(edge(gone));
                    graph.insert(edge(gone + edges));
                }
                if let Some(log) = &log {
                    log.given_records(given, 2 * batch);
                }
                given += 1;
                graph.advance_to(1 + given);
            }
            graph.flush();
            // Whoever has given all waits for the others only.
            let rest = (given < inputs && !period.is_zero())
                .then(|| (period * given as u32).saturating_sub(begun.elapsed()).max(Duration::from_nanos(1)));
            run.step(worker, rest);
            let seen = probe.with_frontier(|frontier| frontier.first().map_or(inputs, |least| least - 1)).min(given);
            if seen > done {
                (done..seen).for_each(|_| run.tick());
                done = seen;
                if let Some(log) = &log {
                    log.done(done);
                }
            }
        }
    });
}
