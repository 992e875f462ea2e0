use std::path::PathBuf;
use std::time::Duration;

use timely::order::Product;
use timely::progress::Timestamp;

use crate::Arrivals;
use crate::overflow::Overflow;
use crate::send::Target;
use crate::streams::Registration;

/// Where events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sink {
    /// To Parquet files.
    Write,
    /// Nowhere: everything is recorded and then dropped. Tells what recording costs without writing.
    Discard,
}

/// How and where a trace is recorded; equal on all workers.
///
/// ```
/// use std::time::Duration;
/// let config = pag_timely::Config::new("trace").replace(true).flush_every(Duration::from_millis(200));
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) path: PathBuf,
    pub(crate) sink: Sink,
    pub(crate) replace: bool,
    pub(crate) flush_every: Duration,
    pub(crate) idle_cut: Duration,
    pub(crate) buffer: usize,
    pub(crate) rows_per_file: usize,
    pub(crate) attach_timeout: Duration,
    pub(crate) trust_wall_clock: bool,
    /// Progress streams, and whether the program named them itself.
    pub(crate) streams: Vec<Registration>,
    pub(crate) keep_unused: bool,
    pub(crate) steps: bool,
    pub(crate) founders: Option<usize>,
    pub(crate) target: Option<Target>,
    pub(crate) authority: Option<PathBuf>,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) spill: u64,
    pub(crate) finish_within: Duration,
    pub(crate) arrivals: Option<Arrivals>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("path", &self.path)
            .field("sink", &self.sink)
            .field("replace", &self.replace)
            .field("flush_every", &self.flush_every)
            .field("idle_cut", &self.idle_cut)
            .field("buffer", &self.buffer)
            .field("rows_per_file", &self.rows_per_file)
            .field("attach_timeout", &self.attach_timeout)
            .field("trust_wall_clock", &self.trust_wall_clock)
            .field("streams", &self.streams.len())
            .field("keep_unused", &self.keep_unused)
            .field("steps", &self.steps)
            .field("founders", &self.founders)
            .field("target", &self.target)
            .field("authority", &self.authority)
            .field("overflow", &self.overflow)
            .field("spill", &self.spill)
            .field("finish_within", &self.finish_within)
            .field("arrivals", &self.arrivals)
            .finish()
    }
}

impl Config {
    /// A trace in the directory `path`, with the usual progress streams.
    ///
    /// The usual timestamps are `()`, `usize`, `u64`, `u32`, `i32` and `Duration`, and the loops that Differential and
    /// Timely make of them: `Product<T, u64>` for all of these, `Product<T, u32>` and `Product<T, usize>` for unsigned
    /// ones.
    ///
    /// Each stream costs one reading of the clock in every step. So those of the usual streams that no scope uses are
    /// let go when an epoch ends and every scope built so far was heard of. Name a type with [`Config::progress`] if
    /// only dataflows that are built later use it, or keep all with [`Config::keep_unused`].
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            sink: Sink::Write,
            replace: false,
            flush_every: Duration::from_millis(500),
            idle_cut: Duration::from_micros(100),
            buffer: 512 * 1024,
            rows_per_file: 1024 * 1024,
            attach_timeout: Duration::from_secs(60),
            trust_wall_clock: true,
            streams: Vec::new(),
            keep_unused: false,
            steps: true,
            founders: None,
            target: None,
            authority: None,
            overflow: None,
            spill: 1 << 30,
            finish_within: Duration::from_secs(10),
            arrivals: None,
        }
        .usual::<()>()
        .usual::<usize>()
        .usual::<u64>()
        .usual::<u32>()
        .usual::<i32>()
        .usual::<Duration>()
        .usual::<Product<(), u64>>()
        .usual::<Product<usize, u64>>()
        .usual::<Product<u64, u64>>()
        .usual::<Product<u32, u64>>()
        .usual::<Product<i32, u64>>()
        .usual::<Product<Duration, u64>>()
        .usual::<Product<usize, u32>>()
        .usual::<Product<u64, u32>>()
        .usual::<Product<u32, u32>>()
        .usual::<Product<usize, usize>>()
        .usual::<Product<u64, usize>>()
    }

    /// Also listens to the progress of scopes whose timestamp is `T`. Naming a type twice does no harm.
    pub fn progress<T: Timestamp>(mut self) -> Self {
        // Named first, so that it counts as named even where it is a usual one.
        self.streams.insert(0, (|registrar| registrar.progress::<T>(), true));
        self
    }

    fn usual<T: Timestamp>(mut self) -> Self {
        self.streams.push((|registrar| registrar.progress::<T>(), false));
        self
    }

    /// Whether to keep the usual streams that no scope uses; false unless told.
    pub fn keep_unused(mut self, keep: bool) -> Self {
        self.keep_unused = keep;
        self
    }

    /// How many workers, from worker 0 on, begin the trace; the others [`join`](crate::join) it later, or never.
    ///
    /// Without it every worker must [`attach`](crate::attach), and nobody can join.
    pub fn founders(mut self, workers: usize) -> Self {
        self.founders = Some(workers.max(1));
        self
    }

    /// Whether to mark where steps end and the program's own code runs; true unless told. Two events a step.
    pub fn steps(mut self, mark: bool) -> Self {
        self.steps = mark;
        self
    }

    /// Forgets the usual timestamps and listens to `T` alone; add others with [`Config::progress`].
    pub fn only<T: Timestamp>(mut self) -> Self {
        self.streams.clear();
        self.progress::<T>()
    }

    /// Whether a trace that is at the path already may be replaced. Anything else there never is.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Where events go; [`Sink::Write`] unless told.
    pub fn sink(mut self, sink: Sink) -> Self {
        self.sink = sink;
        self
    }

    /// How often what was recorded becomes a file that readers see; 0.5 s unless told.
    ///
    /// A program that is killed loses what is younger than that plus the time to encode it.
    pub fn flush_every(mut self, interval: Duration) -> Self {
        self.flush_every = interval.max(Duration::from_millis(1));
        self
    }

    /// The longest time between two flushes of an empty step that still counts as idle; 100 us unless told.
    pub fn idle_cut(mut self, cut: Duration) -> Self {
        self.idle_cut = cut;
        self
    }

    /// How many events of one worker may wait for the writer, 40 bytes each; 524,288 unless told.
    ///
    /// A worker that is further ahead waits for the writer. Nothing is ever dropped to keep up; the time spent waiting
    /// is stated in `meta.json` as `stalled_ns`.
    pub fn buffer(mut self, events: usize) -> Self {
        self.buffer = events.max(crate::writer::CHUNK);
        self
    }

    /// Sends the trace to a follower that listens at `address` (`pag follow --listen`), which must be of this machine,
    /// unless what is sent is encrypted ([`Config::authority`]).
    ///
    /// Both sides know a token: the text of `token_file`, which nobody else may read (mode 600). The trace's folder
    /// then holds what the follower has not taken, and is removed when it has taken all; [`Overflow`] says what
    /// happens when it is full. The follower may come later, go away and come back: the program never waits for it,
    /// but for [`Config::finish_within`] at its end. What is left then stays in the folder, which is a trace as well. With several
    /// processes each has a folder of its own in it.
    pub fn send(mut self, address: impl Into<String>, token_file: impl Into<PathBuf>) -> Self {
        self.target = Some(Target { address: address.into(), token_file: token_file.into() });
        self
    }

    /// Encrypts what [`Config::send`] sends, which may then go to other machines. The follower (`pag follow --listen
    /// --certificate`) must show a certificate for the host in its address that is signed by one in `file` (PEM). The
    /// crate must be compiled with its feature `tls`.
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Self {
        self.authority = Some(file.into());
        self
    }

    /// What becomes of events for which there is no room: [`Overflow::Spill`] where they are sent, and
    /// [`Overflow::Wait`] where they are written to files alone, unless told. Where events are dropped, ends of epochs
    /// stay; what is missing is listed in `meta.json` under `lost`.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = Some(overflow);
        self
    }

    /// How many bytes of events may wait in the trace's folder for the follower; 1 GiB unless told.
    pub fn spill(mut self, bytes: u64) -> Self {
        self.spill = bytes;
        self
    }

    /// How long the process' last worker waits for the follower to take what is left; 10 s unless told.
    pub fn finish_within(mut self, time: Duration) -> Self {
        self.finish_within = time;
        self
    }

    /// Also records when messages of other processes arrived, of a program that `arrivals` has started: see
    /// [`Arrivals`].
    pub fn arrivals(mut self, arrivals: &Arrivals) -> Self {
        self.arrivals = Some(arrivals.clone());
        self
    }

    /// A file of events is closed when it has this many rows, even before its time; 1,048,576 unless told.
    ///
    /// Otherwise it is closed after 10 s, or 64 flushes: until then each flush adds to it, so that a busy worker leaves
    /// one file per 10 s or so many rows. Where the trace is sent, each flush makes a file.
    pub fn rows_per_file(mut self, rows: usize) -> Self {
        self.rows_per_file = rows.max(1);
        self
    }

    /// How long to wait for the other workers to attach; 60 s unless told.
    pub fn attach_timeout(mut self, timeout: Duration) -> Self {
        self.attach_timeout = timeout;
        self
    }

    /// Whether processes on one machine may rely on its wall clock, true unless told.
    ///
    /// If not, the estimate of the clock probe is used even where it is worse: for tests, and for machines whose wall
    /// clock is being set while the program runs.
    pub fn trust_wall_clock(mut self, trust: bool) -> Self {
        self.trust_wall_clock = trust;
        self
    }
}
