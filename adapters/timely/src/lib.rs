//! Records what a [Timely](https://docs.rs/timely) or [Differential](https://docs.rs/differential-dataflow) dataflow
//! does, as a *canonical trace*: a directory of Parquet files from which `pag_graph` makes a program activity graph.
//!
//! Three lines on every worker: attach before the first dataflow is built, tick when an epoch is over, finish.
//!
//! ```
//! use pag_timely::Config;
//! use timely::dataflow::InputHandle;
//! use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};
//!
//! # let place = std::env::temp_dir().join(format!("pag-timely-doc-{}", std::process::id()));
//! # let directory = place.clone();
//! let workers = timely::execute(timely::Config::process(2), move |worker| -> Result<(), pag_timely::Error> {
//!     # let place = place.clone();
//!     let tracer = pag_timely::attach(worker, Config::new(place))?;
//!
//!     let mut input = InputHandle::new();
//!     let probe = worker.dataflow(|scope| {
//!         scope.input_from(&mut input).container::<Vec<u64>>().exchange(|x| *x).inspect(|_| ()).probe().0
//!     });
//!     for round in 0..10_u64 {
//!         {
//!             let _load = tracer.application("load");
//!             (0..100).for_each(|x| input.send(x));
//!         }
//!         input.advance_to(round + 1);
//!         while probe.less_than(input.time()) {
//!             worker.step_or_park(None);
//!         }
//!         tracer.tick();
//!     }
//!
//!     tracer.finish()
//! })?;
//! for worker in workers.join() {
//!     worker??; // a worker that panicked, or a trace that could not be begun or written
//! }
//! # let text = std::fs::read_to_string(directory.join("meta.json")).unwrap();
//! # assert!(text.contains("\"complete\": true"), "{text}");
//! # std::fs::remove_dir_all(directory).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where there is something already, `attach` is an error on every worker: [`Error::Exists`] on one, and
//! [`Error::Elsewhere`] on the others. Return it from the closure, as above: a process that exits at once, or panics,
//! makes those that it is connected to panic.
//!
//! # Differential dataflows
//!
//! They are recorded as they are: their arrangements and joins are operators as any others, and [`Config::new`] listens
//! to the timestamps of their loops. With a timestamp of the program's own, name what its loops count in as well
//! ([`Config::progress`]). Here two workers count how many nodes have how many edges, while edges come and go:
//!
//! ```
//! use differential_dataflow::input::Input;
//!
//! # let place = std::env::temp_dir().join(format!("pag-timely-doc-dd-{}", std::process::id()));
//! # let directory = place.clone();
//! let workers = timely::execute(timely::Config::process(2), move |worker| -> Result<(), pag_timely::Error> {
//!     # let place = place.clone();
//!     let tracer = pag_timely::attach(worker, pag_timely::Config::new(place))?;
//!     let (mut edges, probe) = worker.dataflow::<u64, _, _>(|scope| {
//!         let (input, edges) = scope.new_collection::<(u64, u64), isize>();
//!         let degrees = edges.map(|(source, _)| source).count();
//!         (input, degrees.map(|(_, degree)| degree).count().probe().0)
//!     });
//!     for round in 0..20_u64 {
//!         {
//!             let _load = tracer.application_as("load", pag_timely::ActivityType::Processing);
//!             let number = 2 * round + worker.index() as u64;
//!             edges.insert((number % 5, number));
//!             if round >= 10 {
//!                 edges.remove(((number - 20) % 5, number - 20));
//!             }
//!         }
//!         edges.advance_to(round + 1);
//!         edges.flush();
//!         while probe.less_than(&(round + 1)) {
//!             worker.step_or_park(None);
//!         }
//!         tracer.tick(); // `pag why trace.pag --epoch 7` explains this round
//!     }
//!     tracer.finish()
//! })?;
//! workers.join().into_iter().try_for_each(|worker| worker.expect("no worker panics"))?;
//! # let text = std::fs::read_to_string(directory.join("meta.json")).unwrap();
//! # assert!(text.contains("\"complete\": true") && text.contains("\"missing_progress\": []"), "{text}");
//! # std::fs::remove_dir_all(directory).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is recorded
//!
//! - The stream `timely`: operators that start and stop, data messages, parks, pushed progress. Operators, channels and
//!   workers become tables; rows that are no events (shut-down operators, progress channels, texts) are counted in
//!   `meta.json` under `dropped`.
//! - The progress streams, one per timestamp type. [`Config::new`] registers the usual types; [`Config::progress`] and
//!   [`Tracer::progress`] add others; usual ones that turn out to be unused are let go. A scope in which data moved but whose progress nobody listened to is listed in
//!   `meta.json` under `missing_progress`.
//! - Named activities of the program itself: [`Tracer::application`], or [`Tracer::application_as`] with what they do.
//! - Where steps end, and that the program itself ran until the next event: `step_stop` and `program`, two rows a step
//!   ([`Config::steps`]). [`Tracer::before_step`] says to the nanosecond when a step begins.
//! - When input was due, given and done: [`Tracer::inputs`].
//! - When messages of other processes arrived, in `arrived_ns` of their reads: [`Config::arrivals`].
//! - Empty steps, see below.
//!
//! Events of one worker carry `seq` 1, 2, 3, … without gaps, in the order of time; at equal times of different streams
//! what causes comes first. `t_ns` is the worker's own clock, which starts with [`timely::worker::Worker::timer`];
//! `offset_ns` in `workers.parquet` is the Unix time of that instant. Timely logs the records of a message, not its
//! size, so `bytes` is null.
//!
//! # Epochs
//!
//! Everything a worker does between two ticks belongs to one epoch, numbered from 0. [`Tracer::tick`] writes
//! `epoch_end`. What happens after the last tick, the shutdown of the dataflows included, carries the next number.
//!
//! # Empty steps
//!
//! [`Worker::step`](timely::worker::Worker::step) schedules nothing when there is nothing to do, and logs nothing; a
//! program that spins instead of parking would leave gaps that nobody can explain. But Timely flushes its loggers at
//! the end of every step, also of an empty one. So the recorder sees every step end without help from the program:
//!
//! - A step at whose end nothing was logged since the previous step's end is **empty**. One or more empty steps in a
//!   row are one stretch: a row `idle_start` at the flush that ended the last step with events (or at the tick after
//!   it), a row `idle_stop` at the first event after the last empty step, with the number of steps as its `records`.
//!   (Not at the flush of the last empty step: the message that ends the stretch may have been sent since.) Millions
//!   of spins are two rows.
//! - An empty step takes well under a microsecond. Where one flush follows another by more than
//!   [`Config::idle_cut`] (100 us), the program did something else in between, or the operating system took the core
//!   away. The stretch is cut there; nothing is claimed about that time, and it stays a gap. Work of the program
//!   between two steps that takes less than the cut and logs nothing counts as idle: name it with
//!   [`Tracer::application`] if it matters.
//! - A step that parked has its `park` and `unpark`, so it is not empty.
//! - A stretch that stays open is handed over every [`Config::flush_every`], and the next begins where it ends: a
//!   reader that follows a live run sees that the worker idles.
//!
//! # Where it goes, and when
//!
//! The worker's thread only appends records of 40 bytes. One thread per process encodes and writes. When it is behind
//! by more than [`Config::buffer`] events of a worker, that worker **waits**; nothing is dropped. The time waited is in
//! `meta.json` as `stalled_ns`. [`Config::overflow`] may drop instead.
//!
//! [`Config::send`] sends the trace to `pag follow --listen`: a second thread sends every file that is published, and
//! removes it when the follower has it. [`Config::authority`] encrypts what is sent, so that the follower
//! may be on another machine (feature `tls`).
//!
//! Every [`Config::flush_every`] (0.5 s) what was recorded goes into a file `events/worker-W-N.parquet`, which appears
//! under its name only when it is whole, so a reader can follow a live run. For 10 s, or up to
//! [`Config::rows_per_file`] rows, the last file of a worker is replaced by one that begins with the same row groups and
//! has one more; then the next number begins. Where the trace is sent, each flush makes a file of its own. A program that is killed, at any
//! moment, leaves a trace that can be read and says `"complete": false`; it lacks what is younger than the last flush.
//! `complete` becomes true when every worker has called [`Tracer::finish`] and is gone.
//!
//! If the disk is full or a file cannot be written, the program goes on, the trace ends there and stays incomplete,
//! the error is printed, and [`Tracer::finish`] returns it if it is known by then.
//!
//! # Workers that join and leave
//!
//! [`Config::founders`] says how many workers begin the trace; another one enters it with [`join`], which is not known
//! before it calls that, and counts epochs from the one that it is told. Timely itself has a fixed number of workers: in
//! version 0.31 those that join are there from the beginning, and take part in the trace from then on. Whoever starts a
//! worker says [`Tracer::spawned`]; [`Tracer::step`] names what is done meanwhile, [`Tracer::blocked`] where a worker
//! waits for it, [`Tracer::sent`] and [`Tracer::received`] what is sent over other ways than Timely's
//! (channel `rescale:bootstrap`), [`Tracer::measure`] how large the progress state is (`rescale:state`), and
//! [`Tracer::leave`] that a worker ends.
//!
//! # Several processes
//!
//! All processes are given the same directory. Each writes the events of its own workers and a file in `parts`; the
//! small tables are merged from the parts, under a lock, whenever one changes. Processes that do not share a file
//! system each make the directory for themselves; copy `events` and `parts` together afterwards, and call [`assemble`].
//!
//! [`attach`] makes the workers meet: they exchange who they are, over a Timely channel outside of any dataflow. With
//! several processes, the first worker of each also compares its clock with worker 0's in 64 round trips. The estimate
//! is off by half a round trip at most. It is used where it is better than the wall clock: on one machine both
//! processes read the same wall clock to 100 ns or so, and the probe never makes that worse; between machines nobody
//! knows how far the wall clocks are apart, and the probe decides. With one process there is no probe.

#![deny(missing_docs)]

mod arrivals;
mod between;
mod clock;
mod config;
mod connection;
mod directory;
mod error;
mod events;
mod inputs;
mod joined;
mod joining;
mod meeting;
mod overflow;
mod record;
mod recorder;
mod send;
mod streams;
mod tables;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
#[cfg(feature = "tls")]
mod tls;
mod tracer;
mod writer;

pub use arrivals::Arrivals;
pub use config::{Config, Sink};
pub use directory::assemble;
pub use error::Error;
pub use inputs::{Inputs, Schedule};
pub use joining::{Blocked, Step};
pub use overflow::Overflow;
pub use record::ActivityType;
pub use tracer::{Activities, Activity, Tracer, attach, join};
