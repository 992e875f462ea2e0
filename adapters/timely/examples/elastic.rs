//! Workers that are activated stage by stage: bins of keys, and what was counted in them, move to idle workers.
//!
//! Worker 0 feeds records by the clock (`--period`), and routes them by the bin of their key. In each stage of `epochs`
//! epochs as many workers hold bins as `--active` says; the others are idle. Between two stages worker 0 waits until all
//! is done that it gave, tells the owners over a control stream which bins go where, and goes on when their state has
//! moved over an exchange, which is part of the next epoch: the input of epoch n has the number n. No worker is born: one that gets its first bins is *activated* (`rescale:activate`). At the
//! end all bins come to worker 0, which prints what was counted: it depends on the records alone.

mod common;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{Arguments, Run, Size, Word, Work, mix, random};
use pag_timely::{Inputs, Schedule, Step};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Exchange;
use timely::dataflow::operators::generic::operator::Operator;
use timely::dataflow::operators::{Concat, Input, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::worker::Worker;

/// A bin, its owner, and the next one.
type Move = (u64, u64, u64);
/// A bin, what was counted in it, and its next owner.
type State = (u64, u64, u64);
type Handle<T> = InputHandle<u64, CapacityContainerBuilder<Vec<T>>>;
type Nothing = CapacityContainerBuilder<Vec<()>>;
/// What was counted in the bins that a worker holds.
type Bins = Rc<RefCell<HashMap<u64, u64>>>;
/// The owner of each bin, as worker 0 knows it.
type Owners = Rc<RefCell<Vec<u64>>>;

fn main() {
    let sizes = [
        Size("epochs", 20, "epochs of a stage"),
        Size("records", 64, "records of an epoch"),
        Size("bins", 48, "bins of the keys"),
        Size("cost", 100_000, "nanoseconds of work for a record"),
        Size("move", 0, "nanoseconds of work to take up a bin that moves"),
        Size("period", 10_000, "microseconds from one epoch's input to the next"),
    ];
    let words = [
        Word("active", "4,6,8", "workers that hold bins in each stage"),
        Word("work", "sleep", "whether workers spin or sleep"),
    ];
    let arguments = Arguments::parse_with("Bins of keys move to idle workers.", 8, &sizes, &words);
    let work = Work::read(&arguments);
    let stages = arguments.numbers("active");
    if stages.is_empty() || stages.iter().any(|count| *count == 0 || *count > arguments.workers() as u64) {
        arguments.refuse("--active: in every stage at least one worker holds bins, and no more than there are");
    }
    if arguments.size("period") == 0 || arguments.size("bins") == 0 {
        arguments.refuse("--period and --bins: at least 1");
    }
    arguments.run(move |worker, run| {
        let (bins, owners) = (Bins::default(), Owners::default());
        let (data, control, probe) = build(worker, run, work, (&bins, &owners));
        // Between stages, and at the end, bins move: that is a timestamp, too.
        let times = stages.len() as u64 * (run.arguments.size("epochs") + 1);
        if worker.index() == 0 {
            Feeder { worker, run, data, control, probe: &probe, owners: &owners, now: 0, ended: 0, times }
                .feed(&stages);
            run.collector()(bins.borrow().values().fold(0, |sum, counted| sum.wrapping_add(*counted)));
        } else {
            drop((data, control));
            let mut ended = 0;
            while ended < times {
                run.step(worker, None);
                end_epochs(run, &probe, &mut ended, times);
            }
        }
    });
}

/// Builds the dataflow: records are counted in bins, and bins are moved.
fn build(
    worker: &mut Worker,
    run: &Run,
    work: Work,
    (bins, owners): (&Bins, &Owners),
) -> (Handle<u64>, Handle<Move>, ProbeHandle<u64>) {
    let [number, cost, moving] = ["bins", "cost", "move"].map(|name| run.arguments.size(name));
    let (mut data, mut control) = (InputHandle::new(), InputHandle::new());
    let (owners, held) = (Rc::clone(owners), [bins; 3].map(Rc::clone));
    let [counting, leaving, coming] = held;
    let (sending, placing) = (run.activities(), run.activities());
    let probe = worker.dataflow_named("Elastic", |scope| {
        let by_bin = Exchange::new(move |key: &u64| owners.borrow()[(key % number) as usize]);
        let records = scope.input_from(&mut data).container::<Vec<u64>>();
        let counted = records.unary::<Nothing, _, _, _>(by_bin, "count", |_, _| {
            move |input, _| {
                input.for_each(|_, keys| {
                    work.until(Instant::now(), Duration::from_nanos(cost * keys.len() as u64));
                    for key in keys.drain(..) {
                        let mut held = counting.borrow_mut();
                        let count = held.entry(key % number).or_default();
                        *count = count.wrapping_add(mix(key));
                    }
                });
            }
        });
        let moves = scope.input_from(&mut control).container::<Vec<Move>>();
        let to_owner = Exchange::new(|(_, owner, _): &Move| *owner);
        let states = moves.unary::<CapacityContainerBuilder<Vec<State>>, _, _, _>(to_owner, "leave", |_, _| {
            move |input, output| {
                input.for_each(|time, moves| {
                    let _step = sending.as_ref().map(|marks| marks.begin(Step::ServerSendState.name()));
                    let mut session = output.session(&time);
                    for (bin, _, next) in moves.drain(..) {
                        session.give((bin, leaving.borrow_mut().remove(&bin).unwrap_or_default(), next));
                    }
                });
            }
        });
        let to_next = Exchange::new(|(_, _, next): &State| *next);
        let placed = states.unary::<Nothing, _, _, _>(to_next, "come", |_, _| {
            move |input, _| {
                input.for_each(|_, states| {
                    let step = if coming.borrow().is_empty() { Step::Activate } else { Step::PeerBackfill };
                    let _step = placing.as_ref().map(|marks| marks.begin(step.name()));
                    work.until(Instant::now(), Duration::from_nanos(moving * states.len() as u64));
                    coming.borrow_mut().extend(states.drain(..).map(|(bin, counted, _)| (bin, counted)));
                });
            }
        });
        counted.concat(placed).probe().0
    });
    (data, control, probe)
}

/// Ends the epochs that are complete. After those of a stage comes a timestamp at which bins move, which is none.
fn end_epochs(run: &Run, probe: &ProbeHandle<u64>, ended: &mut u64, times: u64) {
    while *ended < times && !probe.less_than(&(*ended + 1)) {
        *ended += 1;
        if !ended.is_multiple_of(run.arguments.size("epochs") + 1) {
            run.tick();
        }
    }
}

/// What worker 0 does.
struct Feeder<'a> {
    worker: &'a mut Worker,
    run: &'a Run,
    data: Handle<u64>,
    control: Handle<Move>,
    probe: &'a ProbeHandle<u64>,
    owners: &'a Owners,
    /// The timestamp of what is given next, and those that are complete.
    now: u64,
    ended: u64,
    times: u64,
}

impl Feeder<'_> {
    fn feed(mut self, stages: &[u64]) {
        let [epochs, records, bins, period] =
            ["epochs", "records", "bins", "period"].map(|name| self.run.arguments.size(name));
        let period = Duration::from_micros(period);
        *self.owners.borrow_mut() = (0..bins).map(|bin| bin % stages[0]).collect();
        let inputs = self.run.inputs(Schedule::every(period, stages.len() as u64 * epochs));
        let begun = Instant::now();
        for (stage, active) in stages.iter().enumerate() {
            if stage > 0 {
                self.rescale(|bin| bin % active, inputs.as_ref());
            }
            for epoch in (0..epochs).map(|epoch| stage as u64 * epochs + epoch) {
                let due = period.saturating_mul(epoch as u32);
                while let Some(rest) = due.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()) {
                    self.step(Some(rest), inputs.as_ref());
                }
                if let Some(inputs) = &inputs {
                    inputs.given_records(epoch, records);
                }
                (0..records).for_each(|n| self.data.send(random(self.run.arguments.seed, epoch * records + n)));
                self.advance();
            }
        }
        self.rescale(|_| 0, inputs.as_ref());
    }

    fn advance(&mut self) {
        self.now += 1;
        self.data.advance_to(self.now);
        self.control.advance_to(self.now);
    }

    fn step(&mut self, at_most: Option<Duration>, inputs: Option<&Inputs>) {
        self.run.step(self.worker, at_most);
        let before = self.ended;
        end_epochs(self.run, self.probe, &mut self.ended, self.times);
        if let Some(inputs) = inputs.filter(|_| self.ended > before) {
            let stage = self.run.arguments.size("epochs") + 1;
            inputs.done(self.ended / stage * (stage - 1) + self.ended % stage);
        }
    }

    /// Gives every bin the owner that `next` says, state and all.
    fn rescale(&mut self, next: impl Fn(u64) -> u64, inputs: Option<&Inputs>) {
        drop(self.run.application(Step::Request.name()));
        while self.probe.less_than(&self.now) {
            self.step(None, inputs);
        }
        {
            let _routing = self.run.application(Step::ServerRouting.name());
            let mut owners = self.owners.borrow_mut();
            for (bin, owner) in owners.iter_mut().enumerate() {
                let (bin, new) = (bin as u64, next(bin as u64));
                if new != *owner {
                    self.control.send((bin, std::mem::replace(owner, new), new));
                }
            }
        }
        self.advance();
        while self.probe.less_than(&self.now) {
            self.step(None, inputs);
        }
    }
}
