//! Computational imbalance: records are spread evenly, but some workers take longer for each.

mod common;

use common::{Arguments, Size, random, work};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};

fn main() {
    let sizes = [
        Size("epochs", 20, "rounds of input"),
        Size("records", 2_000, "records of a worker in an epoch"),
        Size("cost", 100, "rounds of work for a record on the last worker"),
        Size("factor", 4, "how much longer worker 0 takes for each"),
    ];
    let arguments = Arguments::parse("Worker 0 takes longer for each record.", 2, &sizes);
    arguments.run(|worker, run| {
        let [epochs, records, cost, factor] =
            ["epochs", "records", "cost", "factor"].map(|name| run.arguments.size(name));
        let waste = if worker.index() == 0 { cost * factor.saturating_sub(1) } else { 0 };
        let collect = run.collector();
        let mut input = InputHandle::new();
        let probe = worker.dataflow(|scope| {
            scope
                .input_from(&mut input)
                .container::<Vec<u64>>()
                .exchange(|x| *x)
                .map(move |x| {
                    // The result is the same everywhere; only the way there is longer.
                    std::hint::black_box(work(x, waste));
                    work(x, cost)
                })
                .exchange(|_| 0)
                .inspect(move |x| collect(*x))
                .probe()
                .0
        });
        for epoch in 0..epochs {
            for n in 0..records {
                let record = (epoch * records + n) * worker.peers() as u64 + worker.index() as u64;
                input.send(random(run.arguments.seed, record));
            }
            input.advance_to(epoch + 1);
            run.steps(worker, || probe.less_than(input.time()));
            run.tick();
        }
    });
}
