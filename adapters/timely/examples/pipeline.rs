//! Operators in a row, each on the worker that you say: worker 0 feeds, and a record changes workers where the place does.
//!
//! With `--place 0,0,0` nothing leaves worker 0; with `--place 0,0,1` and `-w 2` an exchange brings the records to the
//! last operator. Between operators of one place lies a pipeline channel.
//!
//! The operators are called `stage 0`, `stage 1`, …, wherever they are. Each takes the cost of its records for all
//! records of a message at once, and reads every cache line of their payload meanwhile. An exchange makes messages of its
//! own size (Timely fills 8 KiB), so a batch is one message only up to the first. Nobody but worker 0 has input.
//! At most `inflight` epochs are begun and not complete; every worker ends its epoch when it sees it complete. What is
//! printed depends on the records alone, not on their way.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Arguments, Run, Size, Word, Work, mix, random};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::{Exchange, ParallelizationContract, Pipeline};
use timely::dataflow::operators::generic::operator::Operator;
use timely::dataflow::operators::{Input, Inspect, Probe};
use timely::dataflow::{InputHandle, ProbeHandle, Stream};
use timely::worker::Worker;

type Record = (u64, Vec<u8>);
type Records = InputHandle<u64, CapacityContainerBuilder<Vec<Record>>>;

/// One operator: what a record costs there, and which worker it is on.
#[derive(Clone, Copy)]
struct Stage {
    cost: u64,
    place: usize,
}

/// Reads the payloads, and takes `cost` nanoseconds for every record, all in all.
fn process(work: Work, records: &[Record], cost: u64) {
    let begun = Instant::now();
    let lines = records.iter().flat_map(|(_, payload)| payload.iter().step_by(64));
    std::hint::black_box(lines.fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    work.until(begun, Duration::from_nanos(cost * records.len() as u64));
}

/// The operators, in their order; ends the program if costs and places do not match each other or the workers.
fn stages(arguments: &Arguments) -> Vec<Stage> {
    let costs = arguments.numbers("costs");
    let place = arguments.numbers("place");
    if !place.is_empty() && place.len() != costs.len() {
        arguments.refuse(&format!("--place has {} workers for {} operators", place.len(), costs.len()));
    }
    let stage = |(index, cost)| Stage { cost, place: place.get(index).map_or(0, |worker| *worker as usize) };
    costs.into_iter().enumerate().map(stage).collect()
}

fn main() {
    let sizes = [
        Size("epochs", 20, "rounds of input"),
        Size("records", 1_000, "records of an epoch"),
        Size("batch", 0, "records of a message; 0: all of an epoch"),
        Size("inflight", 1, "epochs that may be begun and not complete"),
        Size("payload", 0, "bytes that every record carries; with -z, workers exchange them as bytes"),
    ];
    let words = [
        Word("costs", "500,500,500,500", "nanoseconds of work for a record in each operator"),
        Word("place", "", "worker of each operator; worker 0 unless told"),
        Word("work", "spin", "whether operators spin or sleep"),
    ];
    let arguments = Arguments::parse_with("Operators in a row, on the workers that you say.", 1, &sizes, &words);
    let stages = stages(&arguments);
    let work = Work::read(&arguments);
    let absent = stages.iter().find(|stage| stage.place >= arguments.workers());
    if let Some(Stage { place, .. }) = absent {
        arguments.refuse(&format!("--place: there is no worker {place}; give more with -w"));
    }
    if arguments.size("inflight") == 0 {
        arguments.refuse("--inflight: at least one epoch must be under way");
    }
    let total = Arc::new(AtomicU64::new(0));
    arguments.run(move |worker, run| {
        let mut input = InputHandle::new();
        let sum = Arc::clone(&total);
        let probe = worker.dataflow_named("Pipeline", |scope| {
            let mut stream = scope.input_from(&mut input).container::<Vec<Record>>();
            let mut here = 0;
            for (number, Stage { cost, place }) in stages.iter().copied().enumerate() {
                stream = if place == here {
                    add(stream, Pipeline, number, cost, work)
                } else {
                    add(stream, Exchange::new(move |_: &Record| place as u64), number, cost, work)
                };
                here = place;
            }
            stream.inspect(move |(record, _)| _ = sum.fetch_add(mix(*record), Ordering::Relaxed)).probe().0
        });
        if worker.index() == 0 {
            feed(worker, run, input, &probe);
            run.collector()(total.load(Ordering::Relaxed));
        } else {
            drop(input);
            let mut done = 0;
            while done < run.arguments.size("epochs") {
                run.step(worker, None);
                end_epochs(run, &probe, &mut done);
            }
        }
    });
}

/// Adds an operator.
fn add<'scope>(
    stream: Stream<'scope, u64, Vec<Record>>,
    pact: impl ParallelizationContract<u64, Vec<Record>>,
    number: usize,
    cost: u64,
    work: Work,
) -> Stream<'scope, u64, Vec<Record>> {
    stream.unary::<CapacityContainerBuilder<_>, _, _, _>(pact, &format!("stage {number}"), move |_, _| {
        move |input, output| {
            input.for_each(|time, data| {
                process(work, data, cost);
                output.session(&time).give_container(data);
            });
        }
    })
}

/// Gives the dataflow its input, a step after every batch.
fn feed(worker: &mut Worker, run: &Run, mut input: Records, probe: &ProbeHandle<u64>) {
    let [epochs, records, batch, inflight, payload] =
        ["epochs", "records", "batch", "inflight", "payload"].map(|name| run.arguments.size(name));
    let mut done = 0;
    for epoch in 0..epochs {
        while done + inflight <= epoch {
            run.step(worker, None);
            end_epochs(run, probe, &mut done);
        }
        let mut rest = records;
        while rest > 0 {
            let now = if batch == 0 { rest } else { rest.min(batch) };
            let first = epoch * records + (records - rest);
            let make = |n| (random(run.arguments.seed, n), vec![n as u8; payload as usize]);
            input.send_batch(&mut (first..first + now).map(make).collect());
            rest -= now;
            if rest > 0 {
                worker.step();
            }
        }
        input.advance_to(epoch + 1);
        worker.step();
        end_epochs(run, probe, &mut done);
    }
    while done < epochs {
        run.step(worker, None);
        end_epochs(run, probe, &mut done);
    }
}

/// Ends the epochs that are complete.
fn end_epochs(run: &Run, probe: &ProbeHandle<u64>, done: &mut u64) {
    while *done < run.arguments.size("epochs") && !probe.less_than(&(*done + 1)) {
        run.tick();
        *done += 1;
    }
}
