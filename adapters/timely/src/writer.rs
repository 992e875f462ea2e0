//! The way from the workers' threads to files: one lane per worker, one writer thread per process.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Error;
use crate::arrivals::Inbox;
use crate::directory::Directory;
use crate::events::EventFile;
use crate::inputs::{self, InputRow};
use crate::joined::{self, Joined};
use crate::overflow::{Overflow, shed};
use crate::record::{Dropped, Kind, Record, Structure};
use crate::send::Sender;
use crate::tables::Tables;

/// Events that are handed over at once when a worker is busy.
pub(crate) const CHUNK: usize = 16 * 1024;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while appending leaves a shorter, but valid sequence.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the writer.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *locked(&self.rung) = true;
        self.changed.notify_one();
    }

    fn wait(&self, until: Instant) {
        let mut rung = locked(&self.rung);
        while !*rung {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else { break };
            rung = self.changed.wait_timeout(rung, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }
}

/// What a worker has handed over and the writer has not taken.
#[derive(Debug, Default)]
struct Pending {
    full: VecDeque<Vec<Record>>,
    current: Vec<Record>,
    spare: Vec<Vec<Record>>,
    structure: Vec<Structure>,
    inputs: Vec<InputRow>,
    dropped: Dropped,
    stalled: Duration,
    inbox: Option<Inbox>,
    /// Whether the program finished as it should; known when the worker is gone.
    closed: Option<bool>,
}

/// What the writer takes from a lane at once.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) records: Vec<Record>,
    pub(crate) structure: Vec<Structure>,
    pub(crate) inputs: Vec<InputRow>,
    pub(crate) dropped: Dropped,
    pub(crate) stalled: Duration,
    /// Once, from where the writer learns when messages arrived.
    pub(crate) inbox: Option<Inbox>,
    pub(crate) closed: Option<bool>,
}

/// What a worker hands over beside its events; it is taken.
#[derive(Debug)]
pub(crate) struct Beside<'a> {
    pub(crate) structure: &'a mut Vec<Structure>,
    pub(crate) inputs: &'a mut Vec<InputRow>,
}

/// The way of one worker's events.
#[derive(Debug)]
pub(crate) struct Lane {
    worker: u32,
    pending: Mutex<Pending>,
    space: Condvar,
    chunks: usize,
    overflow: Overflow,
    bell: Arc<Bell>,
    failure: Arc<Failure>,
    writer: Mutex<Option<Arc<Writer>>>,
}

/// The writer's first error.
#[derive(Debug, Default)]
struct Failure {
    failed: AtomicBool,
    message: Mutex<Option<String>>,
}

impl Lane {
    fn new(worker: u32, buffer: usize, overflow: Overflow, bell: Arc<Bell>, failure: Arc<Failure>) -> Self {
        Self {
            worker,
            pending: Mutex::default(),
            space: Condvar::new(),
            chunks: (buffer / CHUNK).max(1),
            overflow,
            bell,
            failure,
            writer: Mutex::default(),
        }
    }

    /// A lane without a writer.
    #[cfg(test)]
    pub(crate) fn detached() -> Arc<Self> {
        Arc::new(Self::new(0, usize::MAX, Overflow::Wait, Arc::default(), Arc::default()))
    }

    /// Lets `write` append events; while the writer is too far behind it waits first, or drops them.
    pub(crate) fn append(&self, write: impl FnOnce(&mut Vec<Record>), beside: Beside<'_>, dropped: Dropped) {
        let mut pending = locked(&self.pending);
        let full = pending.full.len() >= self.chunks && !self.failure.failed.load(Ordering::Relaxed);
        if full && self.overflow == Overflow::Wait {
            let began = Instant::now();
            while pending.full.len() >= self.chunks && !self.failure.failed.load(Ordering::Relaxed) {
                let wait = Duration::from_millis(100);
                pending = self.space.wait_timeout(pending, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
            pending.stalled += began.elapsed();
        }
        pending.structure.append(beside.structure);
        pending.inputs.append(beside.inputs);
        pending.dropped = dropped;
        let begin = pending.current.len();
        write(&mut pending.current);
        if full && self.overflow != Overflow::Wait {
            shed(&mut pending.current, begin);
        }
        if pending.current.len() < CHUNK {
            return;
        }
        let next = pending.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK + CHUNK / 4));
        let full = std::mem::replace(&mut pending.current, next);
        pending.full.push_back(full);
        drop(pending);
        self.bell.ring();
    }

    /// Takes what is full, and what is begun too if asked; in the order in which it was appended.
    pub(crate) fn take(&self, all: bool) -> Taken {
        let mut pending = locked(&self.pending);
        let all = all || pending.closed.is_some();
        let mut taken = Taken {
            records: Vec::new(),
            structure: std::mem::take(&mut pending.structure),
            inputs: std::mem::take(&mut pending.inputs),
            dropped: pending.dropped,
            stalled: pending.stalled,
            inbox: pending.inbox.take(),
            closed: pending.closed,
        };
        let full = std::mem::take(&mut pending.full);
        let current = if all { std::mem::take(&mut pending.current) } else { Vec::new() };
        drop(pending);
        self.space.notify_all();
        let mut spare = Vec::new();
        for mut chunk in full.into_iter().chain([current]) {
            if taken.records.is_empty() {
                taken.records = chunk;
            } else {
                taken.records.append(&mut chunk);
                if chunk.capacity() <= 2 * CHUNK && chunk.capacity() > 0 {
                    spare.push(chunk);
                }
            }
        }
        let mut pending = locked(&self.pending);
        let room = 4usize.saturating_sub(pending.spare.len());
        pending.spare.extend(spare.into_iter().take(room));
        taken
    }

    /// Lets the writer say when the messages arrived that the worker reads.
    pub(crate) fn listen(&self, inbox: Inbox) {
        locked(&self.pending).inbox = Some(inbox);
    }

    /// Tells the writer's first error.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*locked(&self.failure.message) {
            Some(message) => Err(Error::Write(message.clone())),
            None => Ok(()),
        }
    }

    /// The worker is gone. Returns when everything is on disk, if it was the process' last.
    pub(crate) fn close(&self, finished: bool) {
        locked(&self.pending).closed = Some(finished);
        self.bell.ring();
        if let Some(writer) = locked(&self.writer).take() {
            writer.leave();
        }
    }
}

/// How often and how large.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) flush_every: Duration,
    pub(crate) rows_per_file: usize,
    pub(crate) buffer: usize,
    /// The epoch that the first event belongs to.
    pub(crate) epoch: i64,
    pub(crate) overflow: Overflow,
    pub(crate) finish_within: Duration,
}

/// The writer of one process; shared by the lanes of its workers.
#[derive(Debug)]
pub(crate) struct Writer {
    lanes: Vec<Arc<Lane>>,
    left: Mutex<usize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread that writes the events of `workers`.
    pub(crate) fn start(
        directory: Directory,
        workers: &[u32],
        limits: Limits,
        sender: Option<Sender>,
    ) -> Result<Arc<Self>, Error> {
        let bell = Arc::<Bell>::default();
        let failure = Arc::<Failure>::default();
        let lanes: Vec<_> = workers
            .iter()
            .map(|&worker| Lane::new(worker, limits.buffer, limits.overflow, Arc::clone(&bell), Arc::clone(&failure)))
            .map(Arc::new)
            .collect();
        let work = Work {
            outputs: lanes.iter().map(|lane| Output::new(Arc::clone(lane), limits.epoch)).collect(),
            tables: Tables::new(directory.workers()),
            directory,
            limits,
            bell,
            sender,
        };
        let thread = std::thread::Builder::new()
            .name("pag-timely:writer".to_owned())
            .spawn(move || work.run(&failure))
            .map_err(|error| Error::Write(format!("no thread for the writer: {error}")))?;
        let writer = Arc::new(Self { left: Mutex::new(lanes.len()), lanes, thread: Mutex::new(Some(thread)) });
        for lane in &writer.lanes {
            *locked(&lane.writer) = Some(Arc::clone(&writer));
        }
        Ok(writer)
    }

    /// The lane of a worker.
    pub(crate) fn lane(&self, worker: u32) -> Option<Arc<Lane>> {
        self.lanes.iter().find(|lane| lane.worker == worker).map(Arc::clone)
    }

    /// A worker is gone; the last one waits for the thread.
    fn leave(&self) {
        let mut left = locked(&self.left);
        *left -= 1;
        if *left > 0 {
            return;
        }
        drop(left);
        if let Some(thread) = locked(&self.thread).take() {
            // The thread reports its failures itself.
            let _ = thread.join();
        }
    }
}

/// One worker's side of the writer.
struct Output {
    lane: Arc<Lane>,
    file: Option<EventFile>,
    /// How many files of events there are; the last one is `joined`.
    files: usize,
    joined: Joined,
    /// Rows about input, those in the last file of them included.
    inputs: Vec<InputRow>,
    /// How many there are; the last one is `joined_inputs`.
    input_files: usize,
    joined_inputs: Joined,
    epoch: i64,
    seq: i64,
    closed: Option<bool>,
    dropped: Dropped,
    stalled: Duration,
    inbox: Option<Inbox>,
}

impl Output {
    fn new(lane: Arc<Lane>, epoch: i64) -> Self {
        Self {
            lane,
            file: None,
            files: 0,
            joined: Joined::new(false),
            inputs: Vec::new(),
            input_files: 0,
            joined_inputs: Joined::new(false),
            epoch,
            seq: 1,
            closed: None,
            dropped: Dropped::default(),
            stalled: Duration::ZERO,
            inbox: None,
        }
    }

    /// Opens the file for the next events: a new one, or the last one once more where files may be joined.
    fn open(&mut self, directory: &Directory, rows_per_file: usize, join: bool) -> Result<EventFile, Error> {
        let (worker, arrivals) = (self.lane.worker, self.inbox.is_some());
        let same = self.files > 0 && self.joined.arrivals() == arrivals;
        if join && same && self.joined.takes(rows_per_file) {
            return EventFile::create(directory, worker, self.files - 1, self.seq, arrivals)?.go_on();
        }
        let file = EventFile::create(directory, worker, self.files, self.seq, arrivals)?;
        self.files += 1;
        self.joined = Joined::new(arrivals);
        Ok(file)
    }
}

struct Work {
    directory: Directory,
    outputs: Vec<Output>,
    tables: Tables,
    limits: Limits,
    bell: Arc<Bell>,
    sender: Option<Sender>,
}

impl Work {
    fn run(mut self, failure: &Failure) {
        // A panic here must not leave workers waiting for ever.
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| self.write_all()))
            .unwrap_or_else(|_| Err(Error::Write("the writer panicked".to_owned())));
        let Err(error) = done else { return };
        let message = error.to_string();
        eprintln!("pag-timely: {message}; the trace is cut short");
        *locked(&failure.message) = Some(message);
        failure.failed.store(true, Ordering::Relaxed);
        // Nobody may wait for space that never comes.
        while self.outputs.iter().any(|output| output.closed.is_none()) {
            self.bell.wait(Instant::now() + Duration::from_millis(100));
            for output in &mut self.outputs {
                output.closed = output.lane.take(true).closed;
            }
        }
    }

    fn write_all(&mut self) -> Result<(), Error> {
        self.describe()?;
        let mut due = Instant::now() + self.limits.flush_every;
        loop {
            self.bell.wait(due);
            let flush = Instant::now() >= due;
            for index in 0..self.outputs.len() {
                self.drain(index, flush)?;
            }
            if self.outputs.iter().all(|output| output.closed.is_some()) {
                break;
            }
            if flush {
                due = Instant::now() + self.limits.flush_every;
                self.publish(false)?;
            }
        }
        let finished = self.outputs.iter().all(|output| output.closed == Some(true));
        self.publish(finished)?;
        if let Some(sender) = self.sender.take() {
            let ends = self.outputs.iter().map(|output| (output.lane.worker, output.seq - 1, finished));
            sender.finish(ends.collect(), self.limits.finish_within);
        }
        Ok(())
    }

    /// Makes room for what comes, where it is sent: waits for the follower, or drops what there is no room for.
    fn make_room(&self, records: &mut Vec<Record>) {
        let Some(sender) = &self.sender else { return };
        if self.limits.overflow == Overflow::Wait {
            while sender.full() && !sender.given_up() {
                sender.wait();
            }
        } else if sender.full() {
            shed(records, 0);
        }
    }

    /// Hands the description of the trace over to be sent.
    fn describe(&self) -> Result<(), Error> {
        self.sender.as_ref().map_or(Ok(()), Sender::describe)
    }

    /// Takes what a worker handed over, and encodes it.
    fn drain(&mut self, index: usize, flush: bool) -> Result<(), Error> {
        let output = &mut self.outputs[index];
        let mut taken = output.lane.take(flush);
        output.closed = taken.closed;
        output.dropped = taken.dropped;
        output.stalled = taken.stalled;
        output.inputs.extend(taken.inputs);
        output.inbox = taken.inbox.or(output.inbox.take());
        if let Some(inbox) = &mut output.inbox {
            // After the events: what they read has come by now.
            inbox.take();
        }
        self.tables.learn(taken.structure);
        self.make_room(&mut taken.records);
        let mut records = taken.records.as_slice();
        while !records.is_empty() {
            let output = &mut self.outputs[index];
            if let (None, Kind::Lost) = (&output.file, records[0].kind) {
                // A file begins with an event.
                let first = output.seq;
                output.seq += records[0].count;
                self.tables.lose(output.lane.worker, first, output.seq - 1);
                records = &records[1..];
                continue;
            }
            if output.file.is_none() {
                // What is sent goes away file by file.
                let join = self.sender.is_none();
                output.file = Some(output.open(&self.directory, self.limits.rows_per_file, join)?);
            }
            let Some(file) = &mut output.file else { continue };
            let room = self.limits.rows_per_file - file.rows();
            let (now, later) = records.split_at(records.len().min(room));
            self.tables.see(now);
            output.epoch = file.append(now, output.epoch, output.inbox.as_mut())?;
            output.seq = file.next();
            records = later;
            if file.rows() >= self.limits.rows_per_file {
                self.publish_tables(false)?;
                self.publish_file(index)?;
            }
        }
        Ok(())
    }

    /// Lets readers see everything that was encoded; tables first, for events refer to them.
    fn publish(&mut self, finished: bool) -> Result<(), Error> {
        self.publish_tables(false)?;
        for index in 0..self.outputs.len() {
            self.publish_file(index)?;
        }
        // What was dropped is known by now.
        self.publish_tables(finished)
    }

    fn publish_inputs(&mut self, index: usize) -> Result<(), Error> {
        let output = &mut self.outputs[index];
        let known = output.joined_inputs.rows();
        if output.inputs.len() == known {
            return Ok(());
        }
        if output.input_files == 0 || !output.joined_inputs.takes(joined::INPUTS) {
            output.inputs.drain(..known);
            output.input_files += 1;
            output.joined_inputs = Joined::new(false);
        }
        let file = self.directory.inputs(output.lane.worker, output.input_files - 1)?;
        inputs::write(&file, output.lane.worker, &output.inputs)?;
        output.joined_inputs.publish(output.inputs.len());
        Ok(())
    }

    fn publish_file(&mut self, index: usize) -> Result<(), Error> {
        // Whoever is killed next then leaves no log that goes on behind what is known of its inputs.
        self.publish_inputs(index)?;
        let Some(file) = self.outputs[index].file.take() else { return Ok(()) };
        let rows = file.rows();
        let portion = file.publish()?;
        self.outputs[index].joined.publish(rows);
        for &(first, last) in &portion.lost {
            self.tables.lose(portion.worker, first, last);
        }
        self.sender.as_ref().map_or(Ok(()), |sender| sender.add(portion))
    }

    fn publish_tables(&mut self, finished: bool) -> Result<(), Error> {
        let mut dropped = Dropped::default();
        let mut stalled = Duration::ZERO;
        for output in &self.outputs {
            dropped.shutdown += output.dropped.shutdown;
            dropped.communication_channel += output.dropped.communication_channel;
            dropped.text += output.dropped.text;
            stalled += output.stalled;
        }
        let changed = self.directory.publish(&mut self.tables, dropped, stalled, finished)?;
        if changed { self.describe() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    fn append(lane: &Lane, write: impl FnOnce(&mut Vec<Record>)) {
        lane.append(write, Beside { structure: &mut Vec::new(), inputs: &mut Vec::new() }, Dropped::default());
    }

    #[test]
    fn chunks_stay_in_order() {
        let lane = Lane::detached();
        let mut next = 0;
        for count in [1, CHUNK, 3, 2 * CHUNK + 1, 5] {
            let write = |out: &mut Vec<Record>| {
                out.extend((next..next + count as u64).map(|t| Record::plain(t, Kind::Start, 0)));
            };
            append(&lane, write);
            next += count as u64;
        }
        let mut records = lane.take(false).records;
        records.extend(lane.take(true).records);
        assert!(records.iter().map(|record| record.t).eq(0..next));
    }

    #[test]
    fn a_worker_waits_for_the_writer() {
        let lane = Arc::new(Lane::new(0, CHUNK, Overflow::Wait, Arc::default(), Arc::default()));
        let fill = |lane: &Lane| {
            let write = |out: &mut Vec<Record>| out.resize(CHUNK, Record::plain(0, Kind::Start, 0));
            append(lane, write);
        };
        fill(&lane);
        let other = Arc::clone(&lane);
        let waiting = std::thread::spawn(move || fill(&other));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "it must wait while the lane is full");
        assert_eq!(lane.take(false).records.len(), CHUNK);
        waiting.join().expect("the other thread appends");
        let taken = lane.take(true);
        assert_eq!(taken.records.len(), CHUNK);
        assert!(taken.stalled >= Duration::from_millis(10), "{:?}", taken.stalled);
    }
}
