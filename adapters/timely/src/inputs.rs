//! When input was due, when the program gave it, and when it was done: the table `inputs`.

use std::path::Path;
use std::time::{Duration, Instant};

use parquet::data_type::{Int32Type, Int64Type};

use crate::Error;
use crate::directory::{replace_table, split};
use crate::events::{optional, required};
use crate::recorder::nanoseconds;
use crate::streams::{Shared, since};

/// When the input of a worker is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    interval: Option<Duration>,
    delay: Duration,
    count: u64,
}

impl Schedule {
    /// An open loop: one input every `interval`, whether or not those before are done; the first one is due at once.
    pub fn every(interval: Duration, count: u64) -> Self {
        Self { interval: Some(interval), delay: Duration::ZERO, count }
    }

    /// A closed loop: an input is due when it is given. What would have come meanwhile is left out, and so are its
    /// latencies.
    pub fn closed(count: u64) -> Self {
        Self { interval: None, delay: Duration::ZERO, count }
    }

    /// Lets the first input be due so much later.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// One row of the table: a schedule, an input that was given, or how far the worker saw its inputs done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct InputRow {
    number: Option<i64>,
    due_ns: Option<i64>,
    given_ns: Option<i64>,
    epoch: Option<i64>,
    records: Option<i64>,
    frontier: Option<i64>,
    noticed_ns: Option<i64>,
    interval_ns: Option<i64>,
    count: Option<i64>,
}

/// The inputs of one worker, from [`Tracer::inputs`](crate::Tracer::inputs).
#[derive(Clone)]
pub struct Inputs {
    shared: Shared,
    timer: Instant,
    first: u64,
    schedule: Schedule,
}

impl std::fmt::Debug for Inputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs").field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

impl Inputs {
    pub(crate) fn new(shared: Shared, timer: Instant, schedule: Schedule) -> Self {
        let first = since(timer) + nanoseconds(schedule.delay);
        let inputs = Self { shared, timer, first, schedule };
        inputs.log(InputRow {
            due_ns: Some(first as i64),
            interval_ns: schedule.interval.map(|interval| nanoseconds(interval) as i64),
            count: Some(schedule.count as i64),
            ..InputRow::default()
        });
        inputs
    }

    fn log(&self, row: InputRow) {
        self.shared.recorder.borrow_mut().input(row);
    }

    /// How long after the first input was due an input is; nothing where it is due when it is given.
    pub fn due(&self, number: u64) -> Option<Duration> {
        self.schedule.interval.map(|interval| interval.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    /// How many inputs are due by now; in a closed loop, all.
    pub fn due_by_now(&self) -> u64 {
        let elapsed = since(self.timer).checked_sub(self.first);
        match (self.schedule.interval, elapsed) {
            (None, _) => self.schedule.count,
            (Some(_), None) => 0,
            (Some(interval), Some(elapsed)) => {
                (elapsed / nanoseconds(interval).max(1)).saturating_add(1).min(self.schedule.count)
            }
        }
    }

    /// How long until an input is due; nothing where it is due by now.
    pub fn until(&self, number: u64) -> Option<Duration> {
        let due = self.first + nanoseconds(self.due(number)?);
        due.checked_sub(since(self.timer)).filter(|left| *left > 0).map(Duration::from_nanos)
    }

    /// Says that the program gives an input now, late or not; they are numbered from 0.
    pub fn given(&self, number: u64) {
        self.give(number, None);
    }

    /// Says that the program gives an input of so many records now.
    pub fn given_records(&self, number: u64, records: u64) {
        self.give(number, Some(records as i64));
    }

    fn give(&self, number: u64, records: Option<i64>) {
        let now = since(self.timer) as i64;
        let due = self.due(number).map_or(now, |due| (self.first + nanoseconds(due)) as i64);
        let epoch = self.shared.recorder.borrow().epoch();
        self.log(InputRow {
            number: Some(number as i64),
            due_ns: Some(due),
            given_ns: Some(now),
            epoch: Some(epoch),
            records,
            ..InputRow::default()
        });
    }

    /// Says that the worker sees everything done that was due before `due`, counted from the first input's due time.
    ///
    /// In a closed loop nothing is due beforehand: use [`Inputs::done`].
    pub fn done_before(&self, due: Duration) {
        if let Some(interval) = self.schedule.interval {
            self.done(nanoseconds(due).div_ceil(nanoseconds(interval).max(1)));
        }
    }

    /// Says that the worker sees the first `count` inputs done.
    pub fn done(&self, count: u64) {
        self.log(InputRow {
            frontier: Some(count.min(self.schedule.count) as i64),
            noticed_ns: Some(since(self.timer) as i64),
            ..InputRow::default()
        });
    }
}

/// Writes rows of a worker into a file.
pub(crate) fn write(file: &Path, worker: u32, rows: &[InputRow]) -> Result<(), Error> {
    let schema = "message schema {
        REQUIRED INT32 worker;
        OPTIONAL INT64 number;
        OPTIONAL INT64 due_ns;
        OPTIONAL INT64 given_ns;
        OPTIONAL INT64 epoch;
        OPTIONAL INT64 records;
        OPTIONAL INT64 frontier;
        OPTIONAL INT64 noticed_ns;
        OPTIONAL INT64 interval_ns;
        OPTIONAL INT64 count;
    }";
    let columns: [fn(&InputRow) -> Option<i64>; 9] = [
        |row| row.number,
        |row| row.due_ns,
        |row| row.given_ns,
        |row| row.epoch,
        |row| row.records,
        |row| row.frontier,
        |row| row.noticed_ns,
        |row| row.interval_ns,
        |row| row.count,
    ];
    replace_table(file, schema, |group| {
        required::<Int32Type>(group, &vec![worker as i32; rows.len()])?;
        for column in columns {
            let (values, levels) = split(rows.iter().map(column));
            optional::<Int64Type>(group, &values, &levels)?;
        }
        Ok(())
    })
}
