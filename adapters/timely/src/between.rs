//! What a worker's own program does between two steps, and where steps end.

use crate::record::{Kind, Record};

/// Where a worker is, as far as steps are concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Between {
    /// Since when the program runs; nothing while a step may be going on.
    since: Option<u64>,
    /// Whether a row stands where the step ended. It stays away as long as the worker only parks again and again.
    marked: bool,
    /// When the program said that a step comes.
    entered: Option<u64>,
}

impl Between {
    /// Whether the program runs.
    pub(crate) fn outside(&self) -> bool {
        self.since.is_some()
    }

    /// The program says that a step comes.
    pub(crate) fn enter(&mut self, t: u64) {
        self.entered = Some(t);
    }

    /// The worker was idle up to `t`, as rows say.
    pub(crate) fn rested(&mut self, t: u64) {
        self.since = Some(t);
        self.marked = true;
    }

    /// Writes where the last step ended, unless that is written.
    pub(crate) fn mark(&mut self, out: &mut Vec<Record>) {
        if let Some(since) = self.since.filter(|_| !self.marked) {
            out.push(Record::plain(since, Kind::StepStop, 0));
            self.marked = true;
        }
    }

    /// Puts rows about the program's time among those from `first` on.
    ///
    /// Parks less than `cut` apart follow each other directly: that is one sleep.
    pub(crate) fn weave(&mut self, out: &mut Vec<Record>, first: usize, cut: u64) {
        use Kind::{ApplicationStart, ApplicationStop, EpochEnd, Receive, Send, Spawn};
        let mut next = first;
        while let (Some(since), Some(record)) = (self.since, out.get(next).copied()) {
            if !self.marked && record.kind == Kind::Park && record.t.saturating_sub(since) < cut {
                *self = Self::default();
                return;
            }
            let mut rows = Vec::new();
            self.mark(&mut rows);
            // What the program does by itself; anything else happens in a step.
            let own = matches!(record.kind, Send | Receive | ApplicationStart | ApplicationStop | EpochEnd | Spawn);
            let until = if own { record.t } else { self.began(since, record.t) };
            if until > since {
                rows.push(Record::plain(until, Kind::Program, 0));
            }
            next += rows.len() + 1;
            out.splice(next - rows.len() - 1..next - rows.len() - 1, rows);
            self.since = own.then_some(record.t);
        }
    }

    /// A step ends at `t`, after all rows of `out`; the worker woke up in it if the last of them says so.
    pub(crate) fn end_step(&mut self, t: u64, out: &mut Vec<Record>) {
        let slept = out.last().is_some_and(|record| record.kind == Kind::Unpark);
        if let Some(since) = self.since {
            // Nothing was scheduled.
            self.mark(out);
            let began = self.began(since, t);
            if began > since {
                out.push(Record::plain(began, Kind::Program, 0));
            }
        }
        *self = Self { since: Some(t), marked: false, entered: None };
        if !slept {
            self.mark(out);
        }
    }

    /// When a step began, of which the first event is at `t`.
    fn began(&self, since: u64, t: u64) -> u64 {
        self.entered.map_or(t, |entered| entered.clamp(since, t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(out: &[Record]) -> Vec<(u64, Kind)> {
        out.iter().map(|record| (record.t, record.kind)).collect()
    }

    fn woven(between: &mut Between, events: &[(u64, Kind)]) -> Vec<(u64, Kind)> {
        let mut out: Vec<_> = events.iter().map(|(t, kind)| Record::plain(*t, *kind, 0)).collect();
        between.weave(&mut out, 0, 100);
        rows(&out)
    }

    fn after_step(t: u64) -> Between {
        let mut between = Between::default();
        between.end_step(t, &mut Vec::new());
        between
    }

    #[test]
    fn the_program_runs_until_a_step_does_something() {
        use Kind::{ApplicationStart, ApplicationStop, Program, Send, Start};
        let mut between = after_step(10);
        let events = [(15, ApplicationStart), (20, ApplicationStop), (20, Send), (32, Start), (40, Send)];
        let expected = [
            (15, Program),
            (15, ApplicationStart),
            (20, Program),
            (20, ApplicationStop),
            (20, Send),
            (32, Program),
            (32, Start),
            (40, Send),
        ];
        assert_eq!(woven(&mut between, &events), expected);
        assert!(!between.outside());
    }

    #[test]
    fn a_step_begins_where_the_program_says() {
        let mut between = after_step(10);
        between.enter(25);
        assert_eq!(woven(&mut between, &[(32, Kind::Start)]), [(25, Kind::Program), (32, Kind::Start)]);
    }

    #[test]
    fn parks_that_follow_each_other_stay_together() {
        let slept = || {
            let mut out = vec![Record::plain(8, Kind::Unpark, 0)];
            let mut between = Between::default();
            between.end_step(10, &mut out);
            assert_eq!(out.len(), 1, "nobody knows yet what follows");
            between
        };
        assert_eq!(woven(&mut slept(), &[(60, Kind::Park)]), [(60, Kind::Park)]);
        let expected = [(10, Kind::StepStop), (200, Kind::Program), (200, Kind::Park)];
        assert_eq!(woven(&mut slept(), &[(200, Kind::Park)]), expected, "the program did something in between");
        let expected = [(10, Kind::StepStop), (60, Kind::Program), (60, Kind::Start)];
        assert_eq!(woven(&mut slept(), &[(60, Kind::Start)]), expected);
    }

    #[test]
    fn a_step_without_events_ends_too() {
        let (mut between, mut out) = (after_step(10), Vec::new());
        between.enter(90);
        between.end_step(95, &mut out);
        assert_eq!(rows(&out), [(90, Kind::Program), (95, Kind::StepStop)]);
    }
}
