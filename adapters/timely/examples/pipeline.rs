//! Operators in a row, each on the worker that you say: worker 0 feeds, and a record changes workers where the place does.
//! With `--split N` the second and the third stand side by side: of 100 records about N pass the second, the others the
//! third, and the fourth reads both, where they are unless its place is neither's.
//!
//! With `--place 0,0,0` nothing leaves worker 0; with `--place 0,0,1` and `-w 2` an exchange brings the records to the
//! last operator. Between operators of one place lies a pipeline channel.
//!
//! The operators are called `stage 0`, `stage 1`, …, wherever they are. Each takes the cost of its records for all
//! records of a message at once, and reads every cache line of their payload meanwhile. An exchange makes messages of its
//! own size (Timely fills 8 KiB), so a batch is one message only up to the first; and what an operator passes on in one
//! activation travels together. So an operator that takes all that is there makes ever larger messages the further it is
//! behind. With `--atonce 1` it takes one message, and comes back for the next. Nobody but worker 0 has input.
//! At most `inflight` epochs are begun and not complete; every worker ends its epoch when it sees it complete. What is
//! printed depends on the records alone, not on their way.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Arguments, Run, Size, Word, Work, mix, random};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::{Exchange, ParallelizationContract, Pipeline};
use timely::dataflow::operators::generic::operator::Operator;
use timely::dataflow::operators::vec::Branch;
use timely::dataflow::operators::{Concat, Input, Inspect, Probe};
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
        Size("atonce", 0, "messages that an operator takes in one activation; 0: all that are there"),
        Size("uneven", 1, "every tenth record, or so, takes so many times as long"),
        Size("split", 100, "of 100 records, those that pass the second operator and not the third; 100: all pass both"),
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
    let split = arguments.size("split");
    if split > 100 || (split < 100 && stages.len() < 3) {
        arguments.refuse("--split: up to 100, and below with three operators at least");
    }
    if arguments.size("uneven") == 0 {
        arguments.refuse("--uneven: at least 1");
    }
    let total = Arc::new(AtomicU64::new(0));
    arguments.run(move |worker, run| {
        let mut input = InputHandle::new();
        let sum = Arc::clone(&total);
        let probe = worker.dataflow_named("Pipeline", |scope| {
            let mut stream = scope.input_from(&mut input).container::<Vec<Record>>();
            let mut here = vec![0];
            let operator = |number: usize| Operation {
                number,
                cost: stages[number].cost,
                uneven: run.arguments.size("uneven"),
                at_once: run.arguments.size("atonce") as usize,
                work,
            };
            for (number, stage) in stages.iter().enumerate() {
                if split < 100 && number == 2 {
                    // It stands beside the one before, and is added with it.
                    continue;
                }
                if split == 100 || number != 1 {
                    stream = operator(number).add(stream, stage.place, &here);
                    here = vec![stage.place];
                    continue;
                }
                let beside = stages[2].place;
                let (one, other) = stream.branch(move |_, record| record.0 % 100 >= split);
                let (one, other) = (operator(1).add(one, stage.place, &here), operator(2).add(other, beside, &here));
                stream = one.concat(other);
                here = vec![stage.place, beside];
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

/// What an operator does with its messages.
#[derive(Clone, Copy)]
struct Operation {
    number: usize,
    /// Nanoseconds for a record, and how many times as many for every tenth.
    cost: u64,
    uneven: u64,
    /// Messages that are taken in one activation; 0 for all.
    at_once: usize,
    work: Work,
}

impl Operation {
    /// Adds the operator; what comes from elsewhere than its place is brought there.
    fn add<'scope>(
        self,
        stream: Stream<'scope, u64, Vec<Record>>,
        place: usize,
        here: &[usize],
    ) -> Stream<'scope, u64, Vec<Record>> {
        if here.contains(&place) {
            self.read(stream, Pipeline)
        } else {
            self.read(stream, Exchange::new(move |_: &Record| place as u64))
        }
    }

    fn read<'scope>(
        self,
        stream: Stream<'scope, u64, Vec<Record>>,
        pact: impl ParallelizationContract<u64, Vec<Record>>,
    ) -> Stream<'scope, u64, Vec<Record>> {
        let worker = stream.scope().worker().clone();
        stream.unary::<CapacityContainerBuilder<_>, _, _, _>(pact, &format!("stage {}", self.number), move |_, info| {
            let again = worker.activator_for(info.address);
            let mut waiting = VecDeque::new();
            move |input, output| {
                input.for_each(|time, data| {
                    if self.at_once == 0 {
                        self.process(data);
                        output.session(&time).give_container(data);
                    } else {
                        waiting.push_back((time.retain(0), std::mem::take(data)));
                    }
                });
                for (time, mut data) in waiting.drain(..self.at_once.min(waiting.len())) {
                    self.process(&data);
                    output.session(&time).give_container(&mut data);
                }
                if !waiting.is_empty() {
                    again.activate();
                }
            }
        })
    }

    /// Reads the payloads, and takes the cost of every record, all in all.
    fn process(&self, records: &[Record]) {
        let begun = Instant::now();
        let lines = records.iter().flat_map(|(_, payload)| payload.iter().step_by(64));
        std::hint::black_box(lines.fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        let heavy = records.iter().filter(|(record, _)| record % 10 == 0).count() as u64;
        let times = records.len() as u64 + heavy * (self.uneven - 1);
        self.work.until(begun, Duration::from_nanos(self.cost * times));
    }
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
