//! What a program sees.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use timely::progress::Timestamp;
use timely::worker::Worker;

use crate::directory::Directory;
use crate::meeting::{self, Meeting};
use crate::overflow::Overflow;
use crate::record::{ActivityType, Kind, Record};
use crate::recorder::{IdleLimits, Recorder, nanoseconds};
use crate::send::{self, Process, Sender};
use crate::streams::{self, Shared, since};
use crate::writer::{Lane, Limits, Writer};
use crate::{Config, Error, Inputs, Schedule, Sink};

/// Begins to record a worker. Call it on every worker, before the first dataflow is built.
///
/// Waits until all workers have called it. See the [crate's documentation](crate) for a whole program.
///
/// # Errors
///
/// If the worker does not log, something is at the trace's place already, somebody else listens to a stream, another
/// worker failed or did not come, or the file system refuses.
pub fn attach(worker: &mut Worker, config: Config) -> Result<Tracer, Error> {
    let timer = worker.timer().ok_or(Error::NoLogging)?;
    let lane = match config.sink {
        Sink::Write => Some(open(worker, timer, &config)?),
        Sink::Discard => None,
    };
    record(worker, &config, lane, 0)
}

/// Begins to listen.
fn record(worker: &mut Worker, config: &Config, lane: Option<Arc<Lane>>, epoch: i64) -> Result<Tracer, Error> {
    let timer = worker.timer().ok_or(Error::NoLogging)?;
    let limits =
        IdleLimits { cut: nanoseconds(config.idle_cut), longest: nanoseconds(config.flush_every), steps: config.steps };
    let mut recorder = Recorder::new(since(timer), limits, lane);
    recorder.begin_at(epoch);
    let mut registry = worker.log_register().ok_or(Error::NoLogging)?;
    let shared = streams::register(&mut registry, recorder, &config.streams)?;
    drop(registry);
    let registry = (!config.keep_unused).then(|| worker.clone());
    Ok(Tracer { shared, timer, index: worker.index() as u32, registry })
}

/// Meets the other workers, and finds this one's way to the writer of its process.
fn open(worker: &mut Worker, timer: Instant, config: &Config) -> Result<Arc<Lane>, Error> {
    static WRITERS: Mutex<Option<HashMap<String, Weak<Writer>>>> = Mutex::new(None);

    let path = std::path::absolute(&config.path).map_err(Error::at(&config.path))?;
    let limits = limits(config, 0);
    // Before any other worker may send something.
    let inbox = config.arrivals.as_ref().map(|arrivals| arrivals.inbox(worker.index() as u32, timer));
    // Whoever cannot send says so before anybody waits for him.
    let target = config.target.as_ref().map(|target| target.check(config.authority.as_deref())).transpose()?;
    // Who sends removes what was taken, and so has a folder of his own.
    let place = |meeting: &Meeting| match target {
        Some(_) => send::folder(&path, meeting.process, meeting.processes),
        None => path.clone(),
    };
    let prepare = |meeting: &Meeting| Directory::begin(&place(meeting), config.replace, meeting).map(drop);
    let meeting = meeting::meet(worker, timer, config, prepare)?;
    let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    let writers = writers.get_or_insert_default();
    writers.retain(|_, writer| writer.strong_count() > 0);
    let writer = match writers.get(&meeting.trace_id).and_then(Weak::upgrade) {
        Some(writer) => writer,
        None => {
            let folder = place(&meeting);
            let directory = Directory::join(&folder, config.replace, &meeting)?;
            let workers = meeting.own();
            let sender = target.map(|target| {
                let Meeting { trace_id, process, processes, .. } = meeting.clone();
                let process = Process { trace_id, process, processes, workers: workers.clone() };
                let room = if limits.overflow == Overflow::Drop { config.spill.min(IN_FLIGHT) } else { config.spill };
                Sender::start(target, process, folder, room)
            });
            let writer = Writer::start(directory, &workers, limits, sender.transpose()?)?;
            writers.insert(meeting.trace_id, Arc::downgrade(&writer));
            writer
        }
    };
    let lane = writer.lane(worker.index() as u32).expect("the meeting knows this worker");
    inbox.into_iter().for_each(|inbox| lane.listen(inbox));
    Ok(lane)
}

/// Enters a trace that others began and go on with: for a worker that comes later.
///
/// The configuration is that of the others. The trace must have been begun with [`Config::founders`], in a directory that this worker can see. The worker's rows
/// begin here, and its first epoch is `epoch`: the one that the others are in. Whoever started it says so with
/// [`Tracer::spawned`].
///
/// # Errors
///
/// As [`attach`], and if the trace is not there, cannot be joined, or has the worker already.
pub fn join(worker: &mut Worker, config: Config, epoch: i64) -> Result<Tracer, Error> {
    let timer = worker.timer().ok_or(Error::NoLogging)?;
    let lane = match config.sink {
        Sink::Write => {
            let path = std::path::absolute(&config.path).map_err(Error::at(&config.path))?;
            if config.target.is_some() {
                return Err(Error::Write("nobody can join a trace that is sent to a follower".to_owned()));
            }
            let inbox = config.arrivals.as_ref().map(|arrivals| arrivals.inbox(worker.index() as u32, timer));
            if config.founders.is_some_and(|founders| founders.min(worker.peers()) > 1) {
                // The founders met over a channel: from there on, numbers must be the same on all workers.
                worker.new_identifier();
            }
            let (directory, meeting) = Directory::enter(&path, meeting::newcomer(worker, timer))?;
            let writer = Writer::start(directory, &meeting.listed(), limits(&config, epoch), None)?;
            let lane = writer.lane(worker.index() as u32).expect("it is the only one");
            inbox.into_iter().for_each(|inbox| lane.listen(inbox));
            Some(lane)
        }
        Sink::Discard => None,
    };
    record(worker, &config, lane, epoch)
}

/// How much is on its way to a follower, at most, where nothing else is kept.
const IN_FLIGHT: u64 = 16 << 20;
/// Rows of a file that is sent: of so many, none is too long for a frame.
const SENT_ROWS: usize = 256 * 1024;

fn limits(config: &Config, epoch: i64) -> Limits {
    let sent = config.target.is_some();
    let Config { flush_every, rows_per_file, buffer, .. } = *config;
    Limits {
        flush_every,
        rows_per_file: if sent { rows_per_file.min(SENT_ROWS) } else { rows_per_file },
        buffer,
        epoch,
        finish_within: config.finish_within,
        overflow: config.overflow.unwrap_or(if sent { Overflow::Spill } else { Overflow::Wait }),
    }
}

/// The recording of one worker.
///
/// Dropped without [`Tracer::finish`], as by a panic, it leaves a trace that says that it was cut short.
#[must_use = "a tracer that is dropped at once leaves a trace that says that it was cut short"]
pub struct Tracer {
    pub(crate) shared: Shared,
    pub(crate) timer: Instant,
    pub(crate) index: u32,
    /// The way to the registry, while it may hold streams that nobody uses.
    registry: Option<Worker>,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("epoch", &self.shared.recorder.borrow().epoch()).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Ends the epoch; returns its number.
    ///
    /// Call it when the worker has seen its round of input completed. It must not be called from inside an operator.
    pub fn tick(&self) -> i64 {
        self.shared.synchronise();
        let mut recorder = self.shared.recorder.borrow_mut();
        let epoch = recorder.epoch();
        recorder.tick(since(self.timer));
        drop(recorder);
        if let Some(mut registry) = self.registry.as_ref().and_then(Worker::log_register) {
            streams::release_unused(&mut registry, &self.shared);
        }
        epoch
    }

    /// Says that a step comes: right before `worker.step()` and the like, where it should be known to the nanosecond
    /// when the program's own time ends.
    ///
    /// Without it, that time ends with the first event of the step, and what Timely does before is taken for the
    /// program's: it takes in what other workers sent.
    pub fn before_step(&self) {
        self.shared.recorder.borrow_mut().enter(since(self.timer));
    }

    /// Begins a named activity of the program itself, which ends when the guard is dropped.
    ///
    /// Activities nest. The name becomes a row of `operators.parquet`; its id is 2^40 plus a hash of the name, the same
    /// on every worker, and none that Timely ever gives. May be called inside of operators too, through a clone of
    /// [`Tracer::activities`].
    pub fn application(&self, name: &str) -> Activity {
        self.activities().begin(name)
    }

    /// Begins a named activity of which it is known what it does, as [`Tracer::application`].
    pub fn application_as(&self, name: &str, what: ActivityType) -> Activity {
        self.activities().begin_as(name, what)
    }

    /// A handle that can be moved into operators.
    pub fn activities(&self) -> Activities {
        Activities { shared: self.shared.clone(), timer: self.timer }
    }

    /// Says when the worker's input is due, so that latencies count from then: call it when the first schedule begins.
    ///
    /// What is given, and what is done, goes into the table `inputs` of the trace.
    pub fn inputs(&self, schedule: Schedule) -> Inputs {
        Inputs::new(self.shared.clone(), self.timer, schedule)
    }

    /// Also listens to the progress of scopes whose timestamp is `T`, and which are yet to be built.
    ///
    /// # Errors
    ///
    /// If somebody else listens to that stream.
    pub fn progress<T: Timestamp>(&self, worker: &Worker) -> Result<(), Error> {
        let mut registry = worker.log_register().ok_or(Error::NoLogging)?;
        streams::register_more::<T>(&mut registry, &self.shared)
    }

    /// Says that the program came to its end.
    ///
    /// Recording goes on until Timely drops the worker: what remains in the dataflows is worked off after the
    /// program's closure returns, and messages of that time must not miss their other end. The process' last worker
    /// then waits until everything is written.
    ///
    /// # Errors
    ///
    /// If anything recorded so far could not be written.
    pub fn finish(self) -> Result<(), Error> {
        self.shared.synchronise();
        self.shared.recorder.borrow_mut().finish()
    }
}

/// Begins named activities, also inside of operators.
#[derive(Clone)]
pub struct Activities {
    shared: Shared,
    timer: Instant,
}

impl std::fmt::Debug for Activities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Activities").finish_non_exhaustive()
    }
}

impl Activities {
    /// Begins a named activity, see [`Tracer::application`].
    pub fn begin(&self, name: &str) -> Activity {
        self.begin_as(name, ActivityType::default())
    }

    /// Begins a named activity of which it is known what it does, see [`Tracer::application_as`].
    pub fn begin_as(&self, name: &str, what: ActivityType) -> Activity {
        let id = hash(name);
        let mut recorder = self.shared.recorder.borrow_mut();
        recorder.name(id, name);
        let start = Record::plain(since(self.timer), Kind::ApplicationStart, id);
        recorder.aside(Record { count: what as i64, ..start });
        drop(recorder);
        Activity { activities: self.clone(), id, here: PhantomData }
    }
}

/// A named activity that is going on; it ends when this is dropped.
#[must_use = "the activity ends when this is dropped"]
#[derive(Debug)]
pub struct Activity {
    activities: Activities,
    id: u32,
    // An activity belongs to the worker's thread.
    here: PhantomData<*const ()>,
}

impl Drop for Activity {
    fn drop(&mut self) {
        let Activities { shared, timer } = &self.activities;
        shared.recorder.borrow_mut().aside(Record::plain(since(*timer), Kind::ApplicationStop, self.id));
    }
}

/// FNV-1a: the same on every worker, process and machine.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn activities_have_the_same_id_everywhere() {
        assert_eq!(hash("load"), hash("load"));
        assert_ne!(hash("load"), hash("store"));
    }
}
