//! What a trace says of workers that join and leave: births, steps, messages about state.

use std::marker::PhantomData;

use crate::Error;
use crate::record::{BOOTSTRAP, Kind, Record, STATE};
use crate::streams::since;
use crate::tracer::{Activity, Tracer};

/// A step by which a worker joins or leaves, or lets others do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Somebody asks for workers, or for fewer.
    Request,
    /// A worker that leaves works off what it has.
    Drain,
    /// A worker that was there begins to take part.
    Activate,
    /// The server connects to the newcomer.
    ServerConnect,
    /// The server sends it the progress state.
    ServerSendState,
    /// The server listens for what it asks for.
    ServerListen,
    /// The server answers.
    ServerRespond,
    /// The server changes where records go.
    ServerRouting,
    /// The newcomer accepts connections.
    ClientAccept,
    /// The newcomer takes in the progress state.
    ClientState,
    /// The newcomer looks for updates that it lacks.
    ClientGaps,
    /// The newcomer asks for them.
    ClientRequest,
    /// The newcomer applies them.
    ClientApply,
    /// The newcomer closes the connection.
    ClientClose,
    /// The newcomer changes where records go.
    ClientRouting,
    /// Another worker sends what the newcomer would have got before.
    PeerBackfill,
}

impl Step {
    /// What it is called in the trace.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "rescale:request",
            Self::Drain => "rescale:drain",
            Self::Activate => "rescale:activate",
            Self::ServerConnect => "rescale:server:connect",
            Self::ServerSendState => "rescale:server:send_state",
            Self::ServerListen => "rescale:server:listen",
            Self::ServerRespond => "rescale:server:respond",
            Self::ServerRouting => "rescale:server:routing",
            Self::ClientAccept => "rescale:client:accept",
            Self::ClientState => "rescale:client:state",
            Self::ClientGaps => "rescale:client:gaps",
            Self::ClientRequest => "rescale:client:request",
            Self::ClientApply => "rescale:client:apply",
            Self::ClientClose => "rescale:client:close",
            Self::ClientRouting => "rescale:client:routing",
            Self::PeerBackfill => "rescale:peer:backfill",
        }
    }
}

/// A stretch in which the worker is blocked; it ends when this is dropped.
#[must_use = "the worker is blocked until this is dropped"]
pub struct Blocked<'a> {
    tracer: &'a Tracer,
    // It belongs to the worker's thread.
    here: PhantomData<*const ()>,
}

impl std::fmt::Debug for Blocked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocked").finish_non_exhaustive()
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.tracer.mark(Kind::Unpark, 0, 0);
    }
}

impl Tracer {
    fn mark(&self, kind: Kind, peer: u32, count: i64) {
        let record = Record { peer, count, ..Record::plain(since(self.timer), kind, 0) };
        self.shared.recorder.borrow_mut().aside(record);
    }

    fn message(&self, kind: Kind, channel: u32, peer: u32, updates: u64, bytes: u64) {
        let t = since(self.timer);
        self.shared.recorder.borrow_mut().join_message(t, kind, channel, peer, (updates, bytes));
    }

    /// Says that this worker started another one, which has the number `worker`: that is its birth.
    pub fn spawned(&self, worker: usize) {
        self.mark(Kind::Spawn, worker as u32, 0);
    }

    /// Begins a step of a join; it ends when the guard is dropped.
    pub fn step(&self, step: Step) -> Activity {
        self.application(step.name())
    }

    /// Says that the worker waits for what another one sends, until the guard is dropped: around reads that block.
    pub fn blocked(&self) -> Blocked<'_> {
        self.mark(Kind::Park, 0, -1);
        Blocked { tracer: self, here: PhantomData }
    }

    /// Says that the worker sends another one so many updates of progress, in so many bytes.
    ///
    /// Messages from one worker to another are numbered in their order, on either side.
    pub fn sent(&self, to: usize, updates: u64, bytes: u64) {
        self.message(Kind::Send, BOOTSTRAP, to as u32, updates, bytes);
    }

    /// Says that the worker read such a message of another one.
    pub fn received(&self, from: usize, updates: u64, bytes: u64) {
        self.message(Kind::Receive, BOOTSTRAP, from as u32, updates, bytes);
    }

    /// States how large the worker's progress state is by now. Call it outside of operators.
    pub fn measure(&self, updates: u64, bytes: u64) {
        for kind in [Kind::Send, Kind::Receive] {
            self.message(kind, STATE, self.index, updates, bytes);
        }
    }

    /// As [`Tracer::finish`], for a worker that leaves while others go on: its last event says so.
    ///
    /// # Errors
    ///
    /// If anything recorded so far could not be written.
    pub fn leave(self) -> Result<(), Error> {
        self.shared.recorder.borrow_mut().leave();
        self.finish()
    }
}
