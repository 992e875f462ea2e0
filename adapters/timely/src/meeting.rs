//! Workers agree on a trace before the first dataflow is built.
//!
//! They talk over a Timely channel without a dataflow, so that the addresses of the program's own dataflows stay what
//! they are. Each worker says who it is; worker 0 prepares the directory; the first worker of every other process
//! measures its distance to worker 0's clock meanwhile.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use timely::Bincode;
use timely::communication::{Pull, Push};
use timely::worker::Worker;

use crate::clock::{self, Anchor};
use crate::{Config, Error};

/// Round trips of a clock probe.
const ROUNDS: u32 = 64;

/// One row of the table of workers.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct WorkerRow {
    pub(crate) worker: u32,
    pub(crate) process: u32,
    pub(crate) host: Option<String>,
    pub(crate) clock_domain: String,
    pub(crate) offset_ns: i64,
    pub(crate) uncertainty_ns: Option<i64>,
}

/// What a clock probe found.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Probe {
    /// The process whose clock was compared with that of process 0.
    pub(crate) process: u32,
    /// To be added to its readings.
    pub(crate) correction_ns: i64,
    /// Half of the shortest round trip.
    pub(crate) uncertainty_ns: i64,
    /// Whether the offsets contain the correction.
    pub(crate) used: bool,
}

/// What the workers agreed on.
#[derive(Debug, Clone)]
pub(crate) struct Meeting {
    pub(crate) trace_id: String,
    pub(crate) process: u32,
    pub(crate) processes: u32,
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) probes: Vec<Probe>,
    /// Whether others may join later.
    pub(crate) founded: bool,
}

impl Meeting {
    /// All workers that it knows of.
    pub(crate) fn listed(&self) -> Vec<u32> {
        self.workers.iter().map(|row| row.worker).collect()
    }

    /// Whether several write into the directory, each its part.
    pub(crate) fn in_parts(&self) -> bool {
        self.processes > 1 || self.founded
    }

    /// The workers of this process.
    pub(crate) fn own(&self) -> Vec<u32> {
        self.workers.iter().filter(|row| row.process == self.process).map(|row| row.worker).collect()
    }
}

/// Who a worker is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hello {
    worker: u32,
    process_id: String,
    host: Option<String>,
    clock_domain: String,
    offset_ns: i64,
    uncertainty_ns: i64,
    trace_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Message {
    Hello(Hello),
    Ping { from: u32, round: u32 },
    Pong { round: u32, unix_ns: i64 },
    Probed(Probe),
    Ready { probes: Vec<Probe>, refused: Option<String> },
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// What no other process has.
pub(crate) fn process_id() -> String {
    static ID: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    ID.get_or_init(|| format!("{}-{:016x}", std::process::id(), random())).clone()
}

/// Says who a worker is that joins a trace which others began.
pub(crate) fn newcomer(worker: &Worker, timer: Instant) -> WorkerRow {
    let anchor = Anchor::of_process();
    WorkerRow {
        worker: worker.index() as u32,
        process: 0,
        host: clock::host(),
        clock_domain: clock::domain(&process_id()),
        offset_ns: anchor.unix_ns(timer),
        uncertainty_ns: Some(anchor.uncertainty_ns),
    }
}

/// Meets all other workers. `prepare` makes the directory, on worker 0.
pub(crate) fn meet(
    worker: &mut Worker,
    timer: Instant,
    config: &Config,
    prepare: impl FnOnce(&Meeting) -> Result<(), Error>,
) -> Result<Meeting, Error> {
    let anchor = Anchor::of_process();
    let process_id = process_id();
    let me = Hello {
        worker: worker.index() as u32,
        clock_domain: clock::domain(&process_id),
        process_id,
        host: clock::host(),
        offset_ns: anchor.unix_ns(timer),
        uncertainty_ns: anchor.uncertainty_ns,
        trace_id: format!("{:016x}{:016x}", random(), random()),
    };
    let peers = config.founders.unwrap_or(usize::MAX).min(worker.peers());
    if worker.index() >= peers {
        return Err(Error::Write(format!("worker {} is no founder of the trace: it can join it", worker.index())));
    }
    if peers == 1 {
        let meeting = Meeting { founded: config.founders.is_some(), ..agree(&[me], 0) };
        prepare(&meeting)?;
        return Ok(meeting);
    }
    let mut table = Table::open(worker, peers, config.attach_timeout);
    let hellos = table.greet(&me)?;
    let mut meeting = Meeting { founded: config.founders.is_some(), ..agree(&hellos, me.worker) };
    let first = |process: u32| meeting.workers.iter().find(|row| row.process == process).map(|row| row.worker);
    let probing = meeting.processes > 1;
    let refused;
    if me.worker == 0 {
        let prepared = prepare_after(&mut table, &anchor, &mut meeting, probing, prepare);
        refused = prepared.as_ref().err().map(ToString::to_string);
        let ready = Message::Ready { probes: meeting.probes.clone(), refused: refused.clone() };
        for peer in 1..table.senders.len() {
            table.send(peer as u32, ready.clone());
        }
        table.worker.step();
        prepared?;
    } else {
        if probing && meeting.process != 0 && first(meeting.process) == Some(me.worker) {
            let mut probe = table.probe(&anchor, meeting.process)?;
            let same = meeting.workers[0].clock_domain == me.clock_domain;
            probe.used = !same || !config.trust_wall_clock || probe.uncertainty_ns < me.uncertainty_ns;
            table.send(0, Message::Probed(probe));
        }
        (meeting.probes, refused) = table.wait(|message| match message {
            Message::Ready { probes, refused } => Ok((probes, refused)),
            other => Err(other),
        })?;
        if let Some(message) = refused {
            return Err(Error::Elsewhere(message));
        }
    }
    correct(&mut meeting);
    Ok(meeting)
}

/// Worker 0 answers probes, and then prepares the directory.
fn prepare_after(
    table: &mut Table<'_>,
    anchor: &Anchor,
    meeting: &mut Meeting,
    probing: bool,
    prepare: impl FnOnce(&Meeting) -> Result<(), Error>,
) -> Result<(), Error> {
    while probing && meeting.probes.len() + 1 < meeting.processes as usize {
        match table.next(true)? {
            Message::Ping { from, round } => {
                table.send(from, Message::Pong { round, unix_ns: anchor.now_ns() });
                table.worker.step();
            }
            Message::Probed(probe) => meeting.probes.push(probe),
            _ => {}
        }
    }
    meeting.probes.sort_by_key(|probe| probe.process);
    let mut corrected = meeting.clone();
    correct(&mut corrected);
    prepare(&corrected)
}

/// Numbers processes by their first worker; the trace's id is worker 0's.
fn agree(hellos: &[Hello], me: u32) -> Meeting {
    let mut ids: Vec<&str> = Vec::new();
    let mut workers = Vec::new();
    for hello in hellos {
        let process = ids.iter().position(|id| *id == hello.process_id).unwrap_or_else(|| {
            ids.push(&hello.process_id);
            ids.len() - 1
        });
        let same = hello.clock_domain == hellos[0].clock_domain;
        workers.push(WorkerRow {
            worker: hello.worker,
            process: process as u32,
            host: hello.host.clone(),
            clock_domain: hello.clock_domain.clone(),
            offset_ns: hello.offset_ns,
            // Nobody knows how far apart the clocks of two machines are, until they are probed.
            uncertainty_ns: same.then_some(hello.uncertainty_ns),
        });
    }
    Meeting {
        trace_id: hellos[0].trace_id.clone(),
        process: workers[me as usize].process,
        processes: ids.len() as u32,
        workers,
        probes: Vec::new(),
        founded: false,
    }
}

/// Puts the corrections of the probes into the offsets.
fn correct(meeting: &mut Meeting) {
    for probe in meeting.probes.iter().filter(|probe| probe.used) {
        for row in meeting.workers.iter_mut().filter(|row| row.process == probe.process) {
            row.offset_ns += probe.correction_ns;
            row.uncertainty_ns = Some(probe.uncertainty_ns);
        }
    }
}

/// A channel to every worker.
struct Table<'a> {
    worker: &'a mut Worker,
    senders: Vec<Box<dyn Push<Bincode<Message>>>>,
    receiver: Box<dyn Pull<Bincode<Message>>>,
    inbox: VecDeque<Message>,
    deadline: Instant,
    present: usize,
}

impl<'a> Table<'a> {
    fn open(worker: &'a mut Worker, peers: usize, timeout: Duration) -> Self {
        let channel = worker.new_identifier();
        // No dataflow has this number: messages wake the worker, and schedule nothing.
        let (mut senders, receiver) = worker.allocate::<Bincode<Message>>(channel, [usize::MAX].into());
        senders.truncate(peers);
        let deadline = Instant::now() + timeout;
        Self { worker, senders, receiver, inbox: VecDeque::new(), deadline, present: 1 }
    }

    fn send(&mut self, to: u32, message: Message) {
        let sender = &mut self.senders[to as usize];
        sender.send(Bincode::from(message));
        sender.done();
    }

    /// Waits for the next message; parks meanwhile, unless every microsecond counts.
    fn next(&mut self, hurry: bool) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.inbox.pop_front() {
                return Ok(message);
            }
            while let Some(message) = self.receiver.recv() {
                self.inbox.push_back(message.payload);
            }
            if !self.inbox.is_empty() {
                continue;
            }
            if Instant::now() > self.deadline {
                return Err(Error::Absent { present: self.present, peers: self.senders.len() });
            }
            if hurry {
                self.worker.step();
                std::thread::yield_now();
            } else {
                self.worker.step_or_park(Some(Duration::from_millis(1)));
            }
        }
    }

    /// Waits for one message, and keeps the others for later.
    fn wait<R>(&mut self, mut wanted: impl FnMut(Message) -> Result<R, Message>) -> Result<R, Error> {
        let mut others = Vec::new();
        loop {
            match wanted(self.next(false)?) {
                Ok(found) => {
                    self.inbox.extend(others);
                    return Ok(found);
                }
                Err(other) => others.push(other),
            }
        }
    }

    /// Tells everybody who this is, and learns who they are; in the order of workers.
    fn greet(&mut self, me: &Hello) -> Result<Vec<Hello>, Error> {
        for peer in 0..self.senders.len() as u32 {
            if peer != me.worker {
                self.send(peer, Message::Hello(me.clone()));
            }
        }
        self.worker.step();
        let mut hellos = vec![me.clone()];
        while hellos.len() < self.senders.len() {
            hellos.push(self.wait(|message| match message {
                Message::Hello(hello) => Ok(hello),
                other => Err(other),
            })?);
            self.present = hellos.len();
        }
        hellos.sort_by_key(|hello| hello.worker);
        Ok(hellos)
    }

    /// Asks worker 0 for the time, many times, and keeps the quickest answer.
    fn probe(&mut self, anchor: &Anchor, process: u32) -> Result<Probe, Error> {
        let from = self.worker.index() as u32;
        let mut best = Probe { process, correction_ns: 0, uncertainty_ns: i64::MAX, used: false };
        for round in 0..ROUNDS {
            let sent = anchor.now_ns();
            self.send(0, Message::Ping { from, round });
            self.worker.step();
            let theirs = loop {
                match self.next(true)? {
                    Message::Pong { round: answered, unix_ns } if answered == round => break unix_ns,
                    Message::Pong { .. } => {}
                    other => {
                        // Nothing else is due before worker 0 has heard of the result.
                        debug_assert!(matches!(other, Message::Hello(_)), "{other:?}");
                    }
                }
            };
            let received = anchor.now_ns();
            let uncertainty_ns = (received - sent + 1) / 2;
            if uncertainty_ns < best.uncertainty_ns {
                best.uncertainty_ns = uncertainty_ns;
                best.correction_ns = theirs - (sent + (received - sent) / 2);
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(worker: u32, process: &str, domain: &str) -> Hello {
        Hello {
            worker,
            process_id: process.to_owned(),
            host: None,
            clock_domain: domain.to_owned(),
            offset_ns: 1_000,
            uncertainty_ns: 40,
            trace_id: format!("t{worker}"),
        }
    }

    #[test]
    fn processes_are_numbered_by_their_first_worker() {
        let meeting = agree(&[hello(0, "b", "m"), hello(1, "b", "m"), hello(2, "a", "m"), hello(3, "a", "m")], 3);
        assert_eq!(meeting.workers.iter().map(|row| row.process).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!((meeting.process, meeting.processes, meeting.trace_id.as_str()), (1, 2, "t0"));
        assert_eq!(meeting.own(), [2, 3]);
    }

    #[test]
    fn a_correction_moves_its_process_only() {
        let mut meeting = agree(&[hello(0, "a", "m"), hello(1, "b", "n")], 0);
        assert_eq!(meeting.workers[1].uncertainty_ns, None);
        meeting.probes.push(Probe { process: 1, correction_ns: -250, uncertainty_ns: 30_000, used: true });
        correct(&mut meeting);
        assert_eq!((meeting.workers[0].offset_ns, meeting.workers[1].offset_ns), (1_000, 750));
        assert_eq!(meeting.workers[1].uncertainty_ns, Some(30_000));
        meeting.probes[0].used = false;
        correct(&mut meeting);
        assert_eq!(meeting.workers[1].offset_ns, 750);
    }
}
