//! One event as the worker's thread hands it over: fixed size, no allocation.

/// What happened; the order is that of [`NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Start,
    Stop,
    Send,
    Receive,
    ProgressSend,
    ProgressReceive,
    Park,
    Unpark,
    PushProgress,
    EpochEnd,
    ApplicationStart,
    ApplicationStop,
    IdleStart,
    IdleStop,
    StepStop,
    Program,
    Spawn,
    Exit,
    /// No event: `count` of them were dropped here.
    Lost,
}

/// The words of contract 1, indexed by [`Kind`].
pub(crate) const NAMES: [&str; 18] = [
    "start",
    "stop",
    "send",
    "receive",
    "progress_send",
    "progress_receive",
    "park",
    "unpark",
    "push_progress",
    "epoch_end",
    "application_start",
    "application_stop",
    "idle_start",
    "idle_stop",
    "step_stop",
    "program",
    "spawn",
    "exit",
];

/// What a named activity does.
///
/// `pag_graph` shows it as the type of the time that the activity takes; waits show through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ActivityType {
    /// Something else.
    #[default]
    Application,
    /// Work on data.
    Processing,
    /// Making bytes of data.
    Serialization,
    /// Making data of bytes.
    Deserialization,
    /// Being held back by a full buffer.
    Buffer,
    /// Reading or writing files and sockets.
    Io,
    /// Deciding what to do next.
    Scheduling,
    /// Collecting garbage.
    Gc,
}

/// What the types are called, in their order; the first one is not written.
pub(crate) const TYPES: [&str; 8] =
    ["application", "processing", "serialization", "deserialization", "buffer", "io", "scheduling", "gc"];

/// Ids of named activities start here; Timely numbers operators from 0.
pub(crate) const APPLICATIONS: i64 = 1 << 40;

/// Channels of joins, above all that Timely ever numbers; their messages state bytes, in `scope`.
pub(crate) const BOOTSTRAP: u32 = u32::MAX - 1;
/// Messages of a worker to itself, about the size of its progress state.
pub(crate) const STATE: u32 = u32::MAX;
/// What these channels are called: their type.
pub(crate) const CHANNELS: [(u32, &str); 2] = [(BOOTSTRAP, "rescale:bootstrap"), (STATE, "rescale:state")];

/// One event; what the fields mean depends on the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Nanoseconds since the worker's clock zero.
    pub(crate) t: u64,
    /// Number of the message on its channel.
    pub(crate) message: u64,
    /// Records or updates in a message, a park's time limit (-1 for none), a number of steps, or an activity's type.
    pub(crate) count: i64,
    /// Operator, channel or named activity.
    pub(crate) id: u32,
    /// The scope's operator of a progress message, or the bytes of a message on a channel of joins.
    pub(crate) scope: u32,
    /// The other worker of a message.
    pub(crate) peer: u32,
    /// What happened.
    pub(crate) kind: Kind,
}

impl Record {
    /// An event that needs no more than a time and an id.
    pub(crate) fn plain(t: u64, kind: Kind, id: u32) -> Self {
        Self { t, message: 0, count: 0, id, scope: 0, peer: 0, kind }
    }

    /// An event with a count.
    pub(crate) fn counted(t: u64, kind: Kind, count: i64) -> Self {
        Self { count, ..Self::plain(t, kind, 0) }
    }

    /// Whether the event comes first where one of another stream has the very same time.
    ///
    /// An operator starts before progress is sent or read inside it, and progress about messages follows them; stops,
    /// parks and all else come after.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.kind, Kind::Start | Kind::Unpark | Kind::Send | Kind::Receive | Kind::PushProgress)
    }
}

/// What a worker says about the shape of its dataflows, in the order in which it is said.
#[derive(Debug, Clone)]
pub(crate) enum Structure {
    /// An operator or a scope.
    Operator { id: i64, address: Vec<usize>, name: String },
    /// A channel between two operators; ends are (index in the scope, port).
    Channel { id: i64, scope: Vec<usize>, source: (usize, usize), target: (usize, usize), of: String },
    /// The channel on which the scope that was just built exchanges progress.
    Progress { channel: i64 },
    /// A named activity.
    Application { id: u32, name: String },
    /// A channel of joins is used.
    Join { channel: u32 },
}

/// Rows of the log that are no events of contract 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// An operator was shut down.
    pub(crate) shutdown: u64,
    /// A progress channel was made.
    pub(crate) communication_channel: u64,
    /// Free text.
    pub(crate) text: u64,
}
