//! Three operators in a row whose costs, routes and input are arguments, so that predictions of what-if can be tried out.
//!
//! In every epoch a worker
//!
//! 1. works in the program itself (activity `prepare`), and sends its records, `batch` at a time,
//! 2. works in the operator `before`, where the records come from,
//! 3. in `middle`, where each record goes to a worker by its hash, or, `skew` percent of them, to worker 0,
//! 4. and in `after`, which a record's hash leads to another worker, or `gather` percent of them to worker 0;
//!
//! then, unless `period` says when input comes, it waits until all workers have come that far.
//!
//! Work keeps a core busy until the clock says that the time has passed, for all records of a message at once: it takes
//! as long as told also where the system runs something else in between. What worker 0 gets at last, whose checksum is
//! printed, depends on `gather` alone.

mod common;

use std::time::{Duration, Instant};

use common::{Arguments, Run, Size, mix, random};
use pag_timely::Schedule;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::operator::Operator;
use timely::dataflow::operators::{Input, Inspect, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::worker::Worker;

fn spin(duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Works for every record of a message.
fn work(cost: u64) -> impl Fn(&Vec<u64>) {
    move |records| spin(Duration::from_nanos(cost * records.len() as u64))
}

/// The worker, before it is taken modulo their number, to which a record goes: `percent` of all go to worker 0.
fn route(seed: u64, percent: u64) -> Exchange<u64, impl FnMut(&u64) -> u64> {
    Exchange::new(move |record: &u64| {
        let hash = mix(record ^ mix(seed));
        if hash % 100 < percent { 0 } else { hash >> 32 }
    })
}

fn main() {
    let sizes = [
        Size("epochs", 20, "rounds of input"),
        Size("records", 2_000, "records of a worker in an epoch"),
        Size("batch", 0, "records that a worker sends before it takes a step; 0: all of an epoch"),
        Size("prepare", 0, "microseconds of work before a worker sends its records"),
        Size("before", 50, "nanoseconds of work for a record in the first operator"),
        Size("cost", 200, "nanoseconds of work for a record in the operator in the middle"),
        Size("after", 50, "nanoseconds of work for a record in the last operator"),
        Size("slow", 100, "percent of the cost in the middle that worker 0 takes"),
        Size("skew", 0, "percent of the records that go to worker 0 in the middle, beside its share"),
        Size("gather", 0, "percent of the records that go to worker 0 at last, beside its share"),
        Size("period", 0, "microseconds from one epoch's input to the next; 0: when the epoch before is done"),
        Size(
            "stall",
            0,
            "milliseconds for which worker 0 is held up after it gave the input of the epoch in the middle",
        ),
    ];
    let arguments = Arguments::parse("Operators cost what you say.", 2, &sizes);
    arguments.run(|worker, run| {
        let size = |name| run.arguments.size(name);
        let share = if worker.index() == 0 { size("slow") } else { 100 };
        let (before, middle, after) = (work(size("before")), work(size("cost") * share / 100), work(size("after")));
        let (to_middle, to_after) = (route(1, size("skew")), route(2, size("gather")));
        let collect = run.collector();
        let mut input = InputHandle::new();
        let probe = worker.dataflow_named("Adjustable", |scope| {
            scope
                .input_from(&mut input)
                .container::<Vec<u64>>()
                .unary::<CapacityContainerBuilder<Vec<u64>>, _, _, _>(Pipeline, "before", |_, _| {
                    move |input, output| {
                        input.for_each(|time, data| {
                            before(data);
                            output.session(&time).give_container(data);
                        });
                    }
                })
                .unary::<CapacityContainerBuilder<Vec<u64>>, _, _, _>(to_middle, "middle", |_, _| {
                    move |input, output| {
                        input.for_each(|time, data| {
                            middle(data);
                            output.session(&time).give_container(data);
                        });
                    }
                })
                .unary::<CapacityContainerBuilder<Vec<u64>>, _, _, _>(to_after, "after", |_, _| {
                    move |input, output| {
                        input.for_each(|time, data| {
                            after(data);
                            output.session(&time).give_container(data);
                        });
                    }
                })
                .inspect(move |record| collect(*record))
                .probe()
                .0
        });
        drive(worker, run, &mut input, &probe);
    });
}

type Records = InputHandle<u64, CapacityContainerBuilder<Vec<u64>>>;

/// Gives the dataflow its input, and ends epochs.
fn drive(worker: &mut Worker, run: &Run, input: &mut Records, probe: &ProbeHandle<u64>) {
    let size = |name| run.arguments.size(name);
    let [epochs, records, batch] = ["epochs", "records", "batch"].map(size);
    let [prepare, period] = ["prepare", "period"].map(|name| Duration::from_micros(size(name)));
    let begun = Instant::now();
    let open = !period.is_zero();
    let inputs = run.inputs(if open { Schedule::every(period, epochs) } else { Schedule::closed(epochs) });
    let mut done = 0;
    let end_epochs = |done: &mut u64| {
        let before = *done;
        while *done < epochs && !probe.less_than(&(*done + 1)) {
            run.tick();
            *done += 1;
        }
        if let Some(inputs) = inputs.as_ref().filter(|_| *done > before) {
            inputs.done(*done);
        }
    };
    for epoch in 0..epochs {
        if open {
            let due = period * u32::try_from(epoch).expect("few epochs");
            while let Some(rest) = due.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()) {
                run.step(worker, Some(rest));
                end_epochs(&mut done);
            }
        }
        if let Some(inputs) = &inputs {
            inputs.given_records(epoch, records);
        }
        if worker.index() == 0 && epoch == epochs / 2 {
            std::thread::sleep(Duration::from_millis(size("stall")));
        }
        if !prepare.is_zero() {
            let _prepare = run.application("prepare");
            spin(prepare);
        }
        for n in 0..records {
            if batch > 0 && n > 0 && n % batch == 0 {
                input.flush();
                worker.step();
            }
            let record = (epoch * records + n) * worker.peers() as u64 + worker.index() as u64;
            input.send(random(run.arguments.seed, record));
        }
        input.advance_to(epoch + 1);
        if !open {
            while probe.less_than(input.time()) {
                run.step(worker, None);
            }
        }
        end_epochs(&mut done);
    }
    while done < epochs {
        run.step(worker, None);
        end_epochs(&mut done);
    }
}
