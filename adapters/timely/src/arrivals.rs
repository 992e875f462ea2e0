//! When messages of other processes arrived: what Timely's communication threads log, on its way to the events.
//!
//! A message's header names its channel, its sender and its number, and these are the ones that the sender's and the
//! reader's logs name: Timely counts the messages of a channel for each receiver (of a broadcast: for each process), and
//! whoever sends over TCP counts them once more, from the same first one. So an arrival belongs to exactly one read of
//! each worker that it is for.
//!
//! Timely hands the events of such a thread over when a hundred of them have come together. But before the thread asks
//! its socket for more, it asks a [`Heard`] one, which hands over what there is.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use timely::CommunicationConfig;
use timely::communication::allocator::ProcessBuilder;
use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
use timely::communication::allocator::zero_copy::stream::Stream;
use timely::communication::logging::{CommunicationEvent, CommunicationEventBuilder, CommunicationSetup};
use timely::communication::networking::create_sockets;
use timely::communication::{AllocatorBuilder, Hooks, WorkerGuards};
use timely::logging_core::Logger;
use timely::worker::Worker;

use crate::record::{Kind, Record};
use crate::recorder::nanoseconds;

type CommunicationLogger = Logger<CommunicationEventBuilder>;

/// How many arrivals on one channel from one worker wait to be read; of more, the oldest are forgotten.
const WAITING: usize = 64 * 1024;

/// Tells when messages of other processes arrived, so that a wait ends when its message came in, not when its worker
/// woke up.
///
/// ```no_run
/// let arrivals = pag_timely::Arrivals::new();
/// let heard = arrivals.clone();
/// let workers = arrivals.execute(timely::Config::from_args(std::env::args())?, move |worker| {
///     let tracer = pag_timely::attach(worker, pag_timely::Config::new("trace").arrivals(&heard))?;
///     // ...
///     tracer.finish()
/// })?;
/// # workers.join();
/// # Ok::<(), String>(())
/// ```
///
/// With one process there are none: a message of the same process arrives when it is sent.
#[derive(Clone)]
pub struct Arrivals {
    base: Instant,
    inboxes: Arc<Mutex<HashMap<u32, Vec<Arrival>>>>,
}

/// A message that came in for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    channel: u32,
    sender: u32,
    number: u64,
    /// Nanoseconds since the base of [`Arrivals`].
    t: u64,
}

impl std::fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrivals").finish_non_exhaustive()
    }
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new()
    }
}

impl Arrivals {
    /// Begins to listen, as soon as [`Arrivals::build`] or [`Arrivals::execute`] makes something to listen to.
    pub fn new() -> Self {
        Self { base: Instant::now(), inboxes: Arc::default() }
    }

    /// Does as [`timely::execute`].
    ///
    /// # Errors
    ///
    /// If the workers cannot be started, or not connected.
    pub fn execute<T, F>(&self, config: timely::Config, program: F) -> Result<WorkerGuards<T>, String>
    where
        T: Send + 'static,
        F: Fn(&mut Worker) -> T + Send + Sync + 'static,
    {
        let (builders, others) = self.build(config.communication)?;
        timely::execute::execute_from(builders, others, config.worker, program)
    }

    /// Does as [`CommunicationConfig::try_build`]: what it returns is for [`timely::execute::execute_from`].
    ///
    /// # Errors
    ///
    /// If the processes cannot be connected.
    pub fn build(&self, config: CommunicationConfig) -> Result<(Vec<AllocatorBuilder>, Box<dyn Any + Send>), String> {
        let CommunicationConfig::Cluster { threads, process, addresses, report, zerocopy } = config else {
            return config.try_build();
        };
        let failed = |error: io::Error| format!("failed to initialize networking: {error}");
        let arrivals = self.clone();
        let hooks = Hooks { log_fn: Arc::new(move |setup| arrivals.logger(setup)), ..Hooks::default() };
        let workers = if zerocopy { ProcessBuilder::new_bytes_vector } else { ProcessBuilder::new_typed_vector };
        let workers = workers(threads, hooks.refill.clone(), hooks.spill.clone());
        let sockets = create_sockets(addresses, process, report).map_err(failed)?;
        let sockets = sockets.into_iter().map(|socket| socket.map(Heard)).collect();
        let connected = initialize_networking_from_sockets(workers, sockets, process, threads, hooks);
        let (builders, guard) = connected.map_err(failed)?;
        Ok((builders.into_iter().map(AllocatorBuilder::Tcp).collect(), Box::new(guard)))
    }

    /// The logger of a communication thread, which asks for it; those that send need none.
    fn logger(&self, setup: CommunicationSetup) -> Option<CommunicationLogger> {
        if setup.sender {
            return None;
        }
        let inboxes = Arc::clone(&self.inboxes);
        let logger = CommunicationLogger::new(self.base, Duration::ZERO, move |_, events| {
            let Some(events) = events else { return };
            let mut inboxes = inboxes.lock().unwrap_or_else(PoisonError::into_inner);
            for (time, event) in events.drain(..) {
                let CommunicationEvent::Message(message) = event else { continue };
                let header = message.header;
                for worker in header.target_lower..header.target_upper {
                    // Nobody asks for those of workers that are not recorded, or whose events are dropped.
                    if let Some(inbox) = inboxes.get_mut(&(worker as u32)) {
                        inbox.push(Arrival {
                            channel: header.channel as u32,
                            sender: header.source as u32,
                            number: header.seqno as u64,
                            t: nanoseconds(time),
                        });
                    }
                }
            }
        });
        LISTENS.with_borrow_mut(|listens| *listens = Some(logger.clone()));
        Some(logger)
    }

    /// What comes in for a worker from now on.
    pub(crate) fn inbox(&self, worker: u32, timer: Instant) -> Inbox {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).entry(worker).or_default();
        let later = nanoseconds(timer.saturating_duration_since(self.base)) as i64;
        let earlier = nanoseconds(self.base.saturating_duration_since(timer)) as i64;
        Inbox { arrivals: self.clone(), worker, begins: later - earlier, waiting: HashMap::new() }
    }
}

/// The arrivals of one worker that it has not read, as its writer knows them.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrivals: Arrivals,
    worker: u32,
    /// The worker's clock zero, since the base of the arrivals.
    begins: i64,
    /// By channel and sender, in the order of their numbers.
    waiting: HashMap<(u32, u32), VecDeque<(u64, i64)>>,
}

impl Inbox {
    /// Takes what has come in since the last time.
    pub(crate) fn take(&mut self) {
        let mut inboxes = self.arrivals.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let new = inboxes.get_mut(&self.worker).map(std::mem::take).unwrap_or_default();
        drop(inboxes);
        for Arrival { channel, sender, number, t } in new {
            let waiting = self.waiting.entry((channel, sender)).or_default();
            if waiting.len() >= WAITING {
                waiting.pop_front();
            }
            waiting.push_back((number, t as i64 - self.begins));
        }
    }

    /// When the message arrived that a record reads, by the worker's clock; none where nobody saw it come in.
    pub(crate) fn of(&mut self, record: &Record) -> Option<i64> {
        if !matches!(record.kind, Kind::Receive | Kind::ProgressReceive) {
            return None;
        }
        let waiting = self.waiting.get_mut(&(record.id, record.peer))?;
        // They are read in the order in which they were sent: what comes before was read unrecorded.
        while waiting.front().is_some_and(|&(number, _)| number < record.message) {
            waiting.pop_front();
        }
        let &(number, t) = waiting.front()?;
        if number != record.message || t < 0 {
            return None;
        }
        waiting.pop_front();
        Some(t.min(record.t as i64))
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.arrivals.inboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.worker);
    }
}

thread_local! {
    /// The logger of this communication thread.
    static LISTENS: RefCell<Option<CommunicationLogger>> = const { RefCell::new(None) };
}

/// A socket whose reader hands over what it logged before it waits for more.
struct Heard(TcpStream);

impl Read for Heard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        LISTENS.with_borrow(|listens| {
            if let Some(logger) = listens {
                logger.flush();
            }
        });
        self.0.read(buffer)
    }
}

impl Write for Heard {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Heard {
    fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.set_nonblocking(nonblocking)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(channel: u32, sender: u32, number: u64, t: u64) -> Record {
        Record { t, message: number, count: 0, id: channel, scope: 0, peer: sender, kind: Kind::Receive }
    }

    fn come(arrivals: &Arrivals, worker: u32, channel: u32, sender: u32, number: u64, t: u64) {
        let mut inboxes = arrivals.inboxes.lock().expect("nobody panicked");
        if let Some(inbox) = inboxes.get_mut(&worker) {
            inbox.push(Arrival { channel, sender, number, t });
        }
    }

    #[test]
    fn an_arrival_is_of_one_read() {
        let arrivals = Arrivals::new();
        let mut inbox = arrivals.inbox(1, arrivals.base + Duration::from_nanos(100));
        come(&arrivals, 1, 7, 0, 0, 150);
        come(&arrivals, 1, 7, 0, 1, 160);
        come(&arrivals, 1, 8, 0, 0, 170);
        come(&arrivals, 2, 7, 0, 2, 180);
        inbox.take();
        assert_eq!(inbox.of(&read(7, 0, 1, 90)), Some(60), "the worker's clock begins later");
        assert_eq!(inbox.of(&read(7, 0, 0, 90)), None, "it was passed over");
        assert_eq!(inbox.of(&read(8, 0, 0, 65)), Some(65), "nothing is read before it came");
        assert_eq!(inbox.of(&read(7, 0, 2, 90)), None, "it was for another worker");
        assert_eq!(inbox.of(&read(7, 3, 0, 90)), None);
        let unread = Record { kind: Kind::Send, ..read(7, 0, 3, 90) };
        assert_eq!(inbox.of(&unread), None);
    }

    #[test]
    fn nothing_is_kept_of_those_who_are_not_recorded() {
        let arrivals = Arrivals::new();
        come(&arrivals, 1, 7, 0, 0, 1);
        drop(arrivals.inbox(1, arrivals.base));
        assert!(arrivals.inboxes.lock().expect("nobody panicked").is_empty());
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let arrivals = Arrivals::new();
        let mut inbox = arrivals.inbox(0, arrivals.base);
        for number in 0..=WAITING as u64 {
            come(&arrivals, 0, 1, 1, number, number);
        }
        inbox.take();
        assert_eq!(inbox.of(&read(1, 1, 0, 9)), None);
        assert_eq!(inbox.of(&read(1, 1, 1, 9)), Some(1));
    }
}
