//! Known sleeps and busy loops, measured with the clock of the trace and written beside it.
//!
//! In every epoch, worker w of n
//!
//! 1. works in the program itself (activity `prepare`),
//! 2. works in the operator `busy`, (w + 1) times as long as worker 0,
//! 3. sleeps in the operator `doze`, (n - w) times as long as the last worker,
//! 4. passes its record to the next worker, which works in the operator `collect`,
//! 5. waits until all workers have come that far.
//!
//! `ground_truth.csv` has one row for each of 1 to 4: worker, epoch, name, what (`busy` or `sleep`), start_ns, stop_ns.

mod common;

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{Arguments, Size};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::InputHandle;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::operator::Operator;
use timely::dataflow::operators::{Input, Probe};

struct Row {
    epoch: i64,
    name: &'static str,
    what: &'static str,
    start: Duration,
    stop: Duration,
}

/// Does things, and writes down when it did them.
#[derive(Clone)]
struct Actor {
    timer: Instant,
    epoch: Rc<Cell<i64>>,
    rows: Rc<RefCell<Vec<Row>>>,
}

impl Actor {
    fn act(&self, name: &'static str, what: &'static str, duration: Duration) {
        let start = self.timer.elapsed();
        if what == "sleep" {
            std::thread::sleep(duration);
        } else {
            while self.timer.elapsed() - start < duration {
                std::hint::spin_loop();
            }
        }
        let stop = self.timer.elapsed();
        self.rows.borrow_mut().push(Row { epoch: self.epoch.get(), name, what, start, stop });
    }
}

fn main() {
    let sizes = [
        Size("epochs", 20, "rounds of input"),
        Size("prepare", 200, "microseconds of work outside of operators"),
        Size("busy", 500, "microseconds of work of worker 0"),
        Size("doze", 300, "microseconds of sleep of the last worker"),
        Size("collect", 100, "microseconds of work for the neighbour's record"),
    ];
    let arguments = Arguments::parse("Does what it says, and writes down when.", 2, &sizes);
    let place = arguments.trace.clone();
    let file = match arguments.process {
        0 => "ground_truth.csv".to_owned(),
        process => format!("ground_truth-{process}.csv"),
    };
    let tables = arguments.run(|worker, run| {
        let [epochs, prepare, busy, doze, collect] =
            ["epochs", "prepare", "busy", "doze", "collect"].map(|name| run.arguments.size(name));
        let (index, peers) = (worker.index() as u64, worker.peers() as u64);
        let [prepare, busy, doze, collect] =
            [prepare, busy * (index + 1), doze * (peers - index), collect].map(Duration::from_micros);
        let timer = worker.timer().expect("Timely gives its workers clocks");
        let actor = Actor { timer, epoch: run.epoch(), rows: Rc::default() };
        let sum = run.collector();
        let mut input = InputHandle::new();
        let probe = worker.dataflow_named::<u64, _, _>("Ground truth", |scope| {
            let operator = |name: &'static str, what: &'static str, duration: Duration| {
                let actor = actor.clone();
                move |data: &mut Vec<u64>| {
                    for _ in data.iter() {
                        actor.act(name, what, duration);
                    }
                }
            };
            let (busy, doze, collect) =
                (operator("busy", "busy", busy), operator("doze", "sleep", doze), operator("collect", "busy", collect));
            let stream = scope.input_from(&mut input).container::<Vec<u64>>();
            let stream = stream.unary::<CapacityContainerBuilder<Vec<u64>>, _, _, _>(Pipeline, "busy", |_, _| {
                move |input, output| {
                    input.for_each(|time, data| {
                        busy(data);
                        output.session(&time).give_container(data);
                    });
                }
            });
            let stream = stream.unary::<CapacityContainerBuilder<Vec<u64>>, _, _, _>(Pipeline, "doze", |_, _| {
                move |input, output| {
                    input.for_each(|time, data| {
                        doze(data);
                        output.session(&time).give_container(data);
                    });
                }
            });
            let next = Exchange::new(|to: &u64| *to);
            let stream = stream.unary::<CapacityContainerBuilder<Vec<u64>>, _, _, _>(next, "collect", |_, _| {
                move |input, output| {
                    input.for_each(|time, data| {
                        collect(data);
                        data.iter().for_each(|x| sum(*x));
                        output.session(&time).give_container(data);
                    });
                }
            });
            stream.probe().0
        });
        for epoch in 0..epochs {
            {
                let _prepare = run.application("prepare");
                actor.act("prepare", "busy", prepare);
            }
            input.send((index + 1) % peers);
            input.advance_to(epoch + 1);
            run.steps(worker, || probe.less_than(input.time()));
            run.tick();
        }
        let mut table = String::new();
        for Row { epoch, name, what, start, stop } in actor.rows.take() {
            let (start, stop) = (start.as_nanos(), stop.as_nanos());
            writeln!(table, "{index},{epoch},{name},{what},{start},{stop}").expect("strings grow");
        }
        table
    });
    if let Some(place) = place {
        let text = format!("worker,epoch,name,what,start_ns,stop_ns\n{}", tables.concat());
        if let Err(error) = std::fs::write(place.join(&file), text) {
            eprintln!("{file}: {error}");
            std::process::exit(1);
        }
    }
}
