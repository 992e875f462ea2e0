//! What becomes of events for which there is no room.

use crate::record::{Kind, Record};

/// What becomes of events for which there is no room: the writer is behind, or the follower, and the folder is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// What the follower has not taken stays in the trace's folder until it does, up to [`Config::spill`] bytes; then
    /// events are dropped. The program never waits. The default where events are sent.
    ///
    /// [`Config::spill`]: crate::Config::spill
    Spill,
    /// As `Spill`, but no more stays than is on its way.
    Drop,
    /// The program waits, and no event is dropped. The default where events are written to files alone.
    Wait,
}

/// Drops the records from `begin` on but for ends of epochs, births and exits; how many there were stays, as [`Kind::Lost`].
pub(crate) fn shed(records: &mut Vec<Record>, begin: usize) {
    let mut kept = begin;
    let mut lost = 0;
    for index in begin..records.len() {
        let record = records[index];
        match record.kind {
            Kind::EpochEnd | Kind::Spawn | Kind::Exit => {
                if lost > 0 {
                    records[kept] = Record::counted(record.t, Kind::Lost, lost);
                    kept += 1;
                    lost = 0;
                }
                records[kept] = record;
                kept += 1;
            }
            Kind::Lost => lost += record.count,
            _ => lost += 1,
        }
    }
    records.truncate(kept);
    if lost > 0 {
        records.push(Record::counted(0, Kind::Lost, lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(records: &[Record]) -> Vec<(Kind, i64)> {
        records.iter().map(|record| (record.kind, record.count)).collect()
    }

    #[test]
    fn ends_of_epochs_stay_and_the_others_are_counted() {
        let record = |kind| Record::plain(7, kind, 0);
        let mut records = vec![
            record(Kind::Start),
            record(Kind::Stop),
            record(Kind::Send),
            record(Kind::EpochEnd),
            record(Kind::EpochEnd),
            Record::counted(0, Kind::Lost, 5),
            record(Kind::Park),
        ];
        shed(&mut records, 1);
        let left = [(Kind::Start, 0), (Kind::Lost, 2), (Kind::EpochEnd, 0), (Kind::EpochEnd, 0), (Kind::Lost, 6)];
        assert_eq!(kinds(&records), left);
        shed(&mut records, 0);
        assert_eq!(kinds(&records), [(Kind::Lost, 3), (Kind::EpochEnd, 0), (Kind::EpochEnd, 0), (Kind::Lost, 6)]);
        shed(&mut Vec::new(), 0);
    }
}
