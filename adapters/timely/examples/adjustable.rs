//! Three operators in a row; what the middle one costs is an argument. Predictions of what-if can be tried out.

mod common;

use common::{Arguments, Size, random, work};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};

fn main() {
    let sizes = [
        Size("epochs", 20, "rounds of input"),
        Size("records", 2_000, "records of a worker in an epoch"),
        Size("cost", 200, "rounds of work for a record in the operator in the middle"),
        Size("others", 50, "rounds of work for a record in the operators before and after"),
    ];
    let arguments = Arguments::parse("The operator in the middle costs what you say.", 2, &sizes);
    arguments.run(|worker, run| {
        let [epochs, records, cost, others] =
            ["epochs", "records", "cost", "others"].map(|name| run.arguments.size(name));
        let collect = run.collector();
        let mut input = InputHandle::new();
        let probe = worker.dataflow_named("Adjustable", |scope| {
            scope
                .input_from(&mut input)
                .container::<Vec<u64>>()
                .map(move |x| (x, work(x, others)))
                .exchange(|(x, _)| *x)
                // The result does not depend on the cost, so that runs can be compared.
                .map_in_place(move |(x, _)| {
                    std::hint::black_box(work(*x, cost));
                })
                .exchange(|(x, _)| x >> 7)
                .map(move |(x, y)| x ^ work(y, others))
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
