//! Breadth-first search on a random graph that changes from round to round (Differential).

mod common;

use common::{Arguments, Size, random};
use differential_dataflow::VecCollection;
use differential_dataflow::input::Input;
use differential_dataflow::lattice::Lattice;
use differential_dataflow::operators::*;
use pag_timely::Schedule;
use timely::dataflow::operators::{Exchange, Inspect, Probe};
use timely::progress::Timestamp;

fn main() {
    let sizes = [
        Size("nodes", 1_000, "nodes of the graph"),
        Size("edges", 2_000, "edges of the graph"),
        Size("batch", 10, "edges that come and go in a round"),
        Size("rounds", 20, "rounds after the first"),
    ];
    let arguments = Arguments::parse("Distances from node 0 in a changing graph.", 2, &sizes);
    arguments.run(|worker, run| {
        let [nodes, edges, batch, rounds] = ["nodes", "edges", "batch", "rounds"].map(|name| run.arguments.size(name));
        let collect = run.collector();
        let (mut roots, mut graph, probe) = worker.dataflow::<usize, _, _>(|scope| {
            let (roots, root) = scope.new_collection();
            let (graph, edge) = scope.new_collection();
            let levels = bfs(edge, root).map(|(_, level)| level).consolidate();
            let results = levels.inner.exchange(|_| 0).inspect(move |(level, time, count): &(u64, usize, isize)| {
                collect(*level ^ (*time as u64) << 32 ^ (*count as u64) << 8);
            });
            (roots, graph, results.probe().0)
        });
        let (index, peers) = (worker.index() as u64, worker.peers() as u64);
        let edge = |n: u64| {
            let bits = random(run.arguments.seed, n);
            ((bits >> 32) % nodes, (bits & 0xffff_ffff) % nodes)
        };
        let own = |range: std::ops::Range<u64>| range.filter(move |n| n % peers == index);
        if index == 0 {
            roots.insert(0);
        }
        roots.close();
        own(0..edges).for_each(|n| graph.insert(edge(n)));
        let inputs = run.inputs(Schedule::closed(rounds));
        for round in 0..=rounds {
            if round > 0 {
                if let Some(inputs) = &inputs {
                    inputs.given_records(round - 1, 2 * own(0..batch).count() as u64);
                }
                let gone = (round - 1) * batch..round * batch;
                own(gone.clone()).for_each(|n| graph.remove(edge(n)));
                own(gone.start + edges..gone.end + edges).for_each(|n| graph.insert(edge(n)));
            }
            graph.advance_to(round as usize + 1);
            graph.flush();
            run.steps(worker, || probe.less_than(graph.time()));
            run.tick();
            if let Some(inputs) = inputs.as_ref().filter(|_| round > 0) {
                inputs.done(round);
            }
        }
    });
}

/// Pairs of a node and its distance.
fn bfs<'scope, T: Timestamp + Lattice + Ord>(
    edges: VecCollection<'scope, T, (u64, u64)>,
    roots: VecCollection<'scope, T, u64>,
) -> VecCollection<'scope, T, (u64, u64)> {
    let nodes = roots.map(|root| (root, 0));
    nodes.clone().iterate(|scope, inner| {
        let nodes = nodes.enter(scope);
        let edges = edges.enter(scope);
        inner
            .join_map(edges, |_, level, next| (*next, level + 1))
            .concat(nodes)
            .reduce(|_, levels, least| least.push((*levels[0].0, 1)))
    })
}
