//! Data skew: every record of every worker is sent to worker 0 (the study of the SnailTrail 2 thesis).

mod common;

use common::{Arguments, Size, random, work};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::vec::{Filter, Map};
use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};

fn main() {
    let sizes = [
        Size("epochs", 10, "rounds of input"),
        Size("records", 2_000, "records of a worker in an epoch"),
        Size("cost", 20, "rounds of work for a record at its receiver"),
    ];
    let arguments = Arguments::parse("All records are sent to worker 0.", 4, &sizes);
    arguments.run(|worker, run| {
        let [epochs, records, cost] = ["epochs", "records", "cost"].map(|name| run.arguments.size(name));
        let collect = run.collector();
        let mut input = InputHandle::new();
        let probe = worker.dataflow(|scope| {
            scope
                .input_from(&mut input)
                .container::<Vec<u64>>()
                .filter(|x| x % 100 != 0)
                .exchange(|_| 0)
                .map(move |x| work(x, cost))
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
