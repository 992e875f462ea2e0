//! Triangles in a power-law graph that changes from round to round (Differential).

mod common;

use common::{Arguments, Size, mix, random};
use differential_dataflow::input::Input;
use timely::dataflow::operators::{Exchange, Inspect, Probe};

fn main() {
    let sizes = [
        Size("nodes", 1_000, "nodes of the graph"),
        Size("edges", 4_000, "edges of the graph"),
        Size("batch", 50, "edges that come and go in a round"),
        Size("rounds", 10, "rounds after the first"),
        Size("skew", 2, "exponent: 1 is an even graph, greater ones have hubs"),
    ];
    let arguments = Arguments::parse("Triangles in a changing power-law graph.", 2, &sizes);
    arguments.run(|worker, run| {
        let [nodes, edges, batch, rounds, skew] =
            ["nodes", "edges", "batch", "rounds", "skew"].map(|name| run.arguments.size(name));
        let collect = run.collector();
        let (mut graph, probe) = worker.dataflow::<usize, _, _>(|scope| {
            let (graph, edges) = scope.new_collection::<(u64, u64), isize>();
            let edges = edges.filter(|(a, b)| a != b).map(|(a, b)| (a.min(b), a.max(b))).distinct();
            let pairs = edges.clone().map(|edge| (edge, ()));
            let triangles = edges
                .clone()
                .join_map(edges, |a, b, c| ((*b, *c), *a))
                .filter(|((b, c), _)| b < c)
                .join_map(pairs, |(b, c), a, ()| mix(*a ^ mix(*b ^ mix(*c))) % 64)
                .consolidate();
            let results = triangles.inner.exchange(|_| 0).inspect(move |(class, time, count)| {
                collect(*class ^ (*time as u64) << 32 ^ (*count as u64) << 8);
            });
            (graph, results.probe().0)
        });
        let (index, peers) = (worker.index() as u64, worker.peers() as u64);
        let node = |bits: u64| {
            let uniform = bits as f64 / u32::MAX as f64;
            ((uniform.powi(skew as i32) * nodes as f64) as u64).min(nodes - 1)
        };
        let edge = |n: u64| {
            let bits = random(run.arguments.seed, n);
            (node(bits >> 32), node(bits & 0xffff_ffff))
        };
        let own = |range: std::ops::Range<u64>| range.filter(move |n| n % peers == index);
        own(0..edges).for_each(|n| graph.insert(edge(n)));
        for round in 0..=rounds {
            if round > 0 {
                let gone = (round - 1) * batch..round * batch;
                own(gone.clone()).for_each(|n| graph.remove(edge(n)));
                own(gone.start + edges..gone.end + edges).for_each(|n| graph.insert(edge(n)));
            }
            graph.advance_to(round as usize + 1);
            graph.flush();
            run.steps(worker, || probe.less_than(graph.time()));
            run.tick();
        }
    });
}
