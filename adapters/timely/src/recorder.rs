//! What one worker's thread keeps: pending events, the stretch of empty steps, and the way to the writer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use timely::logging::{CommChannelKind, ParkEvent, StartStop, TimelyEvent};

use crate::between::Between;
use crate::inputs::InputRow;
use crate::record::{Dropped, Kind, Record, Structure};
use crate::streams::Round;
use crate::writer::{Beside, Lane};

/// Converts to nanoseconds; enough for 584 years.
#[inline]
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// Consecutive empty steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    start: u64,
    stop: u64,
    steps: i64,
}

/// Limits that decide how empty steps become rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleLimits {
    /// The longest time from flush to flush that is idle.
    pub(crate) cut: u64,
    /// The longest stretch that is kept open.
    pub(crate) longest: u64,
    /// Whether ends of steps are marked.
    pub(crate) steps: bool,
}

/// What a hand-over ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Nothing,
    Epoch(u64),
    Step(u64),
    Exit,
}

/// The state of one worker's recording.
pub(crate) struct Recorder {
    /// Events of the stream `timely`.
    own: Vec<Record>,
    /// Progress messages and named activities.
    others: Vec<Record>,
    others_sorted: bool,
    structure: Vec<Structure>,
    inputs: Vec<InputRow>,
    dropped: Dropped,
    stretch: Option<Stretch>,
    limits: IdleLimits,
    between: Between,
    /// The last flush or tick, or the time of the last event where that is later.
    last: u64,
    known: HashSet<String>,
    /// Progress channels that were made, and those that were heard of.
    progress_made: usize,
    progress_heard: usize,
    progress_channels: Vec<bool>,
    lane: Option<Arc<Lane>>,
    discarded: Vec<Record>,
    epoch: i64,
    /// Numbers of the next messages on the channels of joins: by channel, other worker, and direction.
    numbers: HashMap<(u32, u32, Kind), u64>,
    finished: bool,
    /// Whether the worker says that it leaves.
    leaves: bool,
    closed: bool,
    /// The tracer itself is flushing.
    pub(crate) inside: bool,
    pub(crate) round: Round,
}

impl Recorder {
    /// A recorder that hands over to `lane`, or drops everything.
    pub(crate) fn new(now: u64, limits: IdleLimits, lane: Option<Arc<Lane>>) -> Self {
        Self {
            own: Vec::new(),
            others: Vec::new(),
            others_sorted: true,
            structure: Vec::new(),
            inputs: Vec::new(),
            dropped: Dropped::default(),
            stretch: None,
            limits,
            between: Between::default(),
            last: now,
            known: HashSet::new(),
            progress_made: 0,
            progress_heard: 0,
            progress_channels: Vec::new(),
            lane,
            discarded: Vec::new(),
            epoch: 0,
            numbers: HashMap::new(),
            finished: false,
            leaves: false,
            closed: false,
            inside: false,
            round: Round::default(),
        }
    }

    /// Whether a stream is one of the tracer's own.
    pub(crate) fn knows(&self, stream: &str) -> bool {
        self.known.contains(stream)
    }

    /// Remembers a stream of the tracer's own.
    pub(crate) fn know(&mut self, stream: String) {
        self.known.insert(stream);
    }

    /// Forgets a stream of the tracer's own.
    pub(crate) fn forget(&mut self, stream: &str) {
        self.known.remove(stream);
    }

    /// A message on a progress channel was logged.
    #[inline]
    pub(crate) fn progress_seen(&mut self, channel: usize) {
        if self.progress_channels.get(channel) == Some(&true) {
            return;
        }
        if channel >= self.progress_channels.len() {
            self.progress_channels.resize(channel + 1, false);
        }
        self.progress_channels[channel] = true;
        self.progress_heard += 1;
    }

    /// Whether every progress channel that was made has been heard of.
    pub(crate) fn all_progress_seen(&self) -> bool {
        self.progress_made > 0 && self.progress_made == self.progress_heard
    }

    /// The epoch that is being recorded.
    pub(crate) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Number of events that were not merged yet.
    pub(crate) fn pending(&self) -> usize {
        self.own.len()
    }

    /// Whether the last event is a park.
    pub(crate) fn parks(&self) -> bool {
        self.own.last().is_some_and(|record| record.kind == Kind::Park)
    }

    /// Takes an event of the stream `timely`.
    #[inline]
    pub(crate) fn timely(&mut self, t: u64, event: TimelyEvent) {
        match event {
            TimelyEvent::Schedule(event) => {
                let kind = if event.start_stop == StartStop::Start { Kind::Start } else { Kind::Stop };
                self.own.push(Record::plain(t, kind, event.id as u32));
            }
            TimelyEvent::Messages(event) => {
                let (kind, peer) =
                    if event.is_send { (Kind::Send, event.target) } else { (Kind::Receive, event.source) };
                self.own.push(Record {
                    t,
                    message: event.seq_no as u64,
                    count: event.record_count,
                    id: event.channel as u32,
                    scope: 0,
                    peer: peer as u32,
                    kind,
                });
            }
            TimelyEvent::PushProgress(event) => {
                self.own.push(Record::plain(t, Kind::PushProgress, event.op_id as u32));
            }
            TimelyEvent::Park(ParkEvent::Park(limit)) => {
                let limit = limit.map_or(-1, |limit| i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX));
                self.own.push(Record::counted(t, Kind::Park, limit));
            }
            TimelyEvent::Park(ParkEvent::Unpark) => self.own.push(Record::plain(t, Kind::Unpark, 0)),
            TimelyEvent::Operates(event) => {
                self.structure.push(Structure::Operator { id: event.id as i64, address: event.addr, name: event.name })
            }
            TimelyEvent::Channels(event) => self.structure.push(Structure::Channel {
                id: event.id as i64,
                scope: event.scope_addr,
                source: event.source,
                target: event.target,
                of: event.typ,
            }),
            TimelyEvent::CommChannels(event) => {
                self.dropped.communication_channel += 1;
                if event.kind == CommChannelKind::Progress {
                    self.progress_made += 1;
                    self.structure.push(Structure::Progress { channel: event.identifier as i64 });
                }
            }
            TimelyEvent::Shutdown(_) => self.dropped.shutdown += 1,
            TimelyEvent::Text(_) => self.dropped.text += 1,
        }
    }

    /// Takes an event of another stream.
    #[inline]
    pub(crate) fn aside(&mut self, record: Record) {
        if self.closed {
            return;
        }
        self.others_sorted &= self.others.last().is_none_or(|last| last.t <= record.t);
        self.others.push(record);
    }

    /// Takes a row about input.
    pub(crate) fn input(&mut self, row: InputRow) {
        if !self.closed {
            self.inputs.push(row);
        }
    }

    /// Takes a message on a channel of joins.
    pub(crate) fn join_message(&mut self, t: u64, kind: Kind, channel: u32, peer: u32, (count, bytes): (u64, u64)) {
        if self.known.insert(format!("channel/{channel}")) {
            self.structure.push(Structure::Join { channel });
        }
        let next = self.numbers.entry((channel, peer, kind)).or_default();
        let message = *next;
        *next += 1;
        let scope = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.aside(Record { t, message, count: count as i64, id: channel, scope, peer, kind });
    }

    /// Counts epochs from `epoch` on.
    pub(crate) fn begin_at(&mut self, epoch: i64) {
        self.epoch = epoch;
    }

    /// The worker leaves: its last row says so.
    pub(crate) fn leave(&mut self) {
        self.leaves = true;
    }

    /// Notes the name of an activity.
    pub(crate) fn name(&mut self, id: u32, name: &str) {
        if self.known.insert(format!("application/{name}")) {
            self.structure.push(Structure::Application { id, name: name.to_owned() });
        }
    }

    /// Merges what is pending; all streams must be complete up to now.
    pub(crate) fn merge(&mut self) {
        if !self.own.is_empty() || !self.others.is_empty() {
            self.hand_over(End::Nothing);
        }
    }

    /// A step ended at `t`; with nothing pending it was empty.
    pub(crate) fn step_ended(&mut self, t: u64) {
        if self.own.is_empty() && self.others.is_empty() && self.structure.is_empty() {
            self.empty_step(t);
        } else {
            self.hand_over(End::Step(t));
        }
        self.last = self.last.max(t);
    }

    fn empty_step(&mut self, t: u64) {
        let idle = t.saturating_sub(self.last) <= self.limits.cut;
        match &mut self.stretch {
            Some(stretch) if idle => {
                stretch.stop = t;
                stretch.steps += 1;
                if stretch.stop - stretch.start >= self.limits.longest {
                    self.hand_over(End::Nothing);
                }
            }
            None if idle => self.stretch = Some(Stretch { start: self.last, stop: t, steps: 1 }),
            // The program did something else before the step.
            Some(_) => self.hand_over(End::Step(t)),
            None if self.between.outside() => self.hand_over(End::Step(t)),
            None => {}
        }
    }

    /// Ends the epoch at `t`; all streams must be merged.
    pub(crate) fn tick(&mut self, t: u64) {
        let t = t.max(self.last);
        self.hand_over(End::Epoch(t));
        self.epoch += 1;
    }

    /// The program says that a step comes.
    pub(crate) fn enter(&mut self, t: u64) {
        self.between.enter(t);
    }

    /// The program says that it came to its end.
    pub(crate) fn finish(&mut self) -> Result<(), crate::Error> {
        self.finished = true;
        self.lane.as_ref().map_or(Ok(()), |lane| lane.check())
    }

    /// Hands everything over, the open stretch included, and then `end`.
    fn hand_over(&mut self, end: End) {
        if self.closed {
            self.own.clear();
            self.others.clear();
            return;
        }
        if !self.others_sorted {
            // Stable: events of one stream stay in their order.
            self.others.sort_by_key(|record| record.t);
            self.others_sorted = true;
        }
        let stretch = self.stretch.take();
        let IdleLimits { cut, steps, .. } = self.limits;
        let Self { own, others, last, between, structure, inputs, .. } = self;
        let mut write = |out: &mut Vec<Record>| {
            if let Some(stretch) = stretch {
                between.mark(out);
                out.push(Record::plain(stretch.start, Kind::IdleStart, 0));
                out.push(Record::counted(stretch.stop, Kind::IdleStop, stretch.steps));
            }
            let before = out.len();
            merge(own, others, out);
            if let End::Epoch(t) = end {
                out.push(Record::plain(t, Kind::EpochEnd, 0));
            }
            // Cannot happen while streams are complete when they are merged; a log that runs backward would be worse.
            let floor = *last;
            for record in out[before..].iter_mut().take_while(|record| record.t < floor) {
                record.t = floor;
            }
            // Idle until the first event: a message that is read there may have been sent after the last empty step.
            if let (Some(stretch), Some(first)) = (stretch, out.get(before).map(|record| record.t))
                && first.saturating_sub(stretch.stop) <= cut
            {
                out[before - 1].t = first.max(stretch.stop);
            }
            if steps {
                if stretch.is_some() {
                    between.rested(out[before - 1].t);
                }
                between.weave(out, before, cut);
                if let End::Step(t) = end {
                    between.end_step(t, out);
                }
            }
            if end == End::Exit {
                out.push(Record::plain(out.last().map_or(*last, |record| record.t.max(*last)), Kind::Exit, 0));
            }
            if let Some(record) = out.last() {
                *last = record.t.max(*last);
            }
        };
        match &self.lane {
            Some(lane) => lane.append(write, Beside { structure, inputs }, self.dropped),
            None => {
                self.discarded.clear();
                write(&mut self.discarded);
                structure.clear();
                inputs.clear();
            }
        }
        self.own.clear();
        self.others.clear();
    }

    /// The worker is gone; nothing more is recorded.
    pub(crate) fn close(&mut self) {
        if self.closed {
            return;
        }
        self.hand_over(if self.leaves { End::Exit } else { End::Nothing });
        self.closed = true;
        if let Some(lane) = self.lane.take() {
            lane.close(self.finished && !std::thread::panicking());
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

/// Merges two sequences by time.
fn merge(own: &[Record], others: &[Record], out: &mut Vec<Record>) {
    out.reserve(own.len() + others.len());
    let mut rest = own;
    for other in others {
        let count = rest
            .iter()
            .position(|record| record.t > other.t || (record.t == other.t && !record.leads()))
            .unwrap_or(rest.len());
        let (before, after) = rest.split_at(count);
        out.extend_from_slice(before);
        out.push(*other);
        rest = after;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(t: u64, kind: Kind) -> Record {
        Record::plain(t, kind, 0)
    }

    fn recorder(lane: &Arc<Lane>) -> Recorder {
        Recorder::new(0, IdleLimits { cut: 100, longest: 1_000, steps: false }, Some(Arc::clone(lane)))
    }

    fn seen(lane: &Lane) -> Vec<(u64, Kind, i64)> {
        lane.take(true).records.iter().map(|record| (record.t, record.kind, record.count)).collect()
    }

    #[test]
    fn streams_are_merged_by_time() {
        let own = [record(1, Kind::Start), record(4, Kind::Stop), record(9, Kind::Start)];
        let others = [record(2, Kind::ProgressReceive), record(3, Kind::ProgressSend), record(10, Kind::ProgressSend)];
        let mut out = Vec::new();
        merge(&own, &others, &mut out);
        assert_eq!(out.iter().map(|record| record.t).collect::<Vec<_>>(), [1, 2, 3, 4, 9, 10]);
    }

    #[test]
    fn ties_are_in_causal_order() {
        let own = [record(1, Kind::Start), record(1, Kind::Send), record(1, Kind::Stop), record(1, Kind::Park)];
        let others = [record(1, Kind::ProgressReceive), record(1, Kind::ProgressSend)];
        let mut out = Vec::new();
        merge(&own, &others, &mut out);
        let kinds: Vec<_> = out.iter().map(|record| record.kind).collect();
        assert_eq!(kinds, [Kind::Start, Kind::Send, Kind::ProgressReceive, Kind::ProgressSend, Kind::Stop, Kind::Park]);
    }

    #[test]
    fn empty_steps_become_one_stretch() {
        let lane = Lane::detached();
        let mut recorder = recorder(&lane);
        recorder.own.push(record(5, Kind::Start));
        recorder.step_ended(10);
        for t in (20..500).step_by(10) {
            recorder.step_ended(t);
        }
        recorder.own.push(record(495, Kind::Start));
        recorder.step_ended(500);
        assert_eq!(
            seen(&lane),
            [(5, Kind::Start, 0), (10, Kind::IdleStart, 0), (495, Kind::IdleStop, 48), (495, Kind::Start, 0)]
        );
    }

    #[test]
    fn a_long_gap_cuts_the_stretch() {
        let lane = Lane::detached();
        let mut recorder = recorder(&lane);
        for t in [10, 20, 30, 400, 410, 420] {
            recorder.step_ended(t);
        }
        recorder.close();
        assert_eq!(
            seen(&lane),
            [(0, Kind::IdleStart, 0), (30, Kind::IdleStop, 3), (400, Kind::IdleStart, 0), (420, Kind::IdleStop, 2)]
        );
    }

    #[test]
    fn an_open_stretch_is_handed_over_from_time_to_time() {
        let lane = Lane::detached();
        let mut recorder = recorder(&lane);
        for t in (0..=2_500).step_by(50) {
            recorder.step_ended(t);
        }
        let rows = seen(&lane);
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[1].0, rows[2].0), (1_000, 1_000), "stretches touch");
    }

    #[test]
    fn a_tick_splits_a_stretch_and_counts_epochs() {
        let lane = Lane::detached();
        let mut recorder = recorder(&lane);
        recorder.step_ended(10);
        recorder.tick(15);
        recorder.step_ended(30);
        recorder.close();
        assert_eq!(
            seen(&lane),
            [
                (0, Kind::IdleStart, 0),
                (15, Kind::IdleStop, 1),
                (15, Kind::EpochEnd, 0),
                (15, Kind::IdleStart, 0),
                (30, Kind::IdleStop, 1)
            ]
        );
        assert_eq!(recorder.epoch(), 1);
    }

    #[test]
    fn a_parked_step_is_not_idle() {
        let lane = Lane::detached();
        let mut recorder = recorder(&lane);
        recorder.timely(5, TimelyEvent::Park(ParkEvent::Park(None)));
        assert!(recorder.parks());
        recorder.merge();
        recorder.timely(50, TimelyEvent::Park(ParkEvent::Unpark));
        recorder.step_ended(60);
        recorder.close();
        assert_eq!(seen(&lane), [(5, Kind::Park, -1), (50, Kind::Unpark, 0)]);
    }
}
