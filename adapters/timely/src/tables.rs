//! Operators, channels and progress streams, as far as one process knows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::meeting::WorkerRow;
use crate::record::{APPLICATIONS, BOOTSTRAP, CHANNELS, Kind, Record, Structure};

/// One row of the table of operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OperatorRow {
    pub(crate) operator: i64,
    pub(crate) address: String,
    pub(crate) name: String,
}

/// One row of the table of channels, before its ends are looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChannelRow {
    pub(crate) channel: i64,
    pub(crate) scope: String,
    pub(crate) source: (usize, usize),
    pub(crate) target: (usize, usize),
    pub(crate) r#type: String,
}

/// The progress channel of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgressRow {
    pub(crate) channel: i64,
    pub(crate) scope: String,
    /// Whether a message on it was recorded.
    pub(crate) seen: bool,
    /// Whether data moved in the scope.
    pub(crate) busy: bool,
}

/// What a process knows of the dataflows.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) operators: BTreeMap<i64, OperatorRow>,
    pub(crate) channels: BTreeMap<i64, ChannelRow>,
    progress: BTreeMap<i64, String>,
    data_seen: Vec<bool>,
    progress_seen: Vec<bool>,
    /// Ids on which two workers disagree; the first statement stands.
    pub(crate) conflicts: Vec<String>,
    /// Per worker, the first and the last number of stretches of events that were dropped.
    lost: BTreeMap<u32, Vec<(i64, i64)>>,
}

fn mark(seen: &mut Vec<bool>, id: u32) {
    let index = id as usize;
    if index >= seen.len() {
        seen.resize(index + 1, false);
    }
    seen[index] = true;
}

fn path(address: &[usize]) -> String {
    address.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
}

impl Tables {
    pub(crate) fn new(workers: Vec<WorkerRow>) -> Self {
        Self {
            workers,
            operators: BTreeMap::new(),
            channels: BTreeMap::new(),
            progress: BTreeMap::new(),
            data_seen: Vec::new(),
            progress_seen: Vec::new(),
            conflicts: Vec::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Learns what one worker says, in its order.
    pub(crate) fn learn(&mut self, structure: Vec<Structure>) {
        let mut parent = None;
        for statement in structure {
            let mut scope = None;
            match statement {
                Structure::Operator { id, address, name } => {
                    scope = address.split_last().map(|(_, parent)| path(parent)).filter(|parent| !parent.is_empty());
                    let row = OperatorRow { operator: id, address: path(&address), name };
                    let known = self.operators.entry(id).or_insert_with(|| row.clone());
                    if *known != row {
                        self.conflicts.push(format!("operator {id}"));
                    }
                }
                Structure::Channel { id, scope, source, target, of } => {
                    let row = ChannelRow { channel: id, scope: path(&scope), source, target, r#type: of };
                    let known = self.channels.entry(id).or_insert_with(|| row.clone());
                    if *known != row {
                        self.conflicts.push(format!("channel {id}"));
                    }
                }
                // Timely names the children of a scope, and then makes its progress channel at once.
                Structure::Progress { channel } => {
                    if let Some(scope) = parent.take() {
                        self.progress.entry(channel).or_insert(scope);
                    }
                }
                Structure::Join { channel } => {
                    let known = CHANNELS.iter().find(|(id, _)| *id == channel);
                    let of = known.map(|(_, name)| (*name).to_owned()).unwrap_or_default();
                    let id = i64::from(channel);
                    let row = ChannelRow {
                        channel: id,
                        scope: "rescale".to_owned(),
                        source: (0, 0),
                        target: (0, 0),
                        r#type: of,
                    };
                    self.channels.insert(id, row);
                }
                Structure::Application { id, name } => {
                    let operator = APPLICATIONS + i64::from(id);
                    let row = OperatorRow { operator, address: "application".to_owned(), name };
                    let known = self.operators.entry(operator).or_insert_with(|| row.clone());
                    if *known != row {
                        self.conflicts.push(format!("activity {:?}", row.name));
                    }
                }
            }
            parent = scope;
        }
        self.conflicts.sort_unstable();
        self.conflicts.dedup();
    }

    /// Notes which channels carry messages.
    pub(crate) fn see(&mut self, records: &[Record]) {
        for record in records {
            match record.kind {
                // Channels of joins belong to no scope.
                Kind::Send | Kind::Receive if record.id >= BOOTSTRAP => {}
                Kind::Send | Kind::Receive => mark(&mut self.data_seen, record.id),
                Kind::ProgressSend | Kind::ProgressReceive => mark(&mut self.progress_seen, record.id),
                _ => {}
            }
        }
    }

    /// Notes that events of a worker were dropped, after all that were dropped before.
    pub(crate) fn lose(&mut self, worker: u32, first: i64, last: i64) {
        let stretches = self.lost.entry(worker).or_default();
        match stretches.last_mut() {
            Some(before) if before.1 + 1 == first => before.1 = last,
            _ => stretches.push((first, last)),
        }
    }

    /// Worker, first and last number of what was dropped.
    pub(crate) fn lost(&self) -> Vec<(u32, i64, i64)> {
        let stretches = self.lost.iter().flat_map(|(&worker, all)| all.iter().map(move |&(a, b)| (worker, a, b)));
        stretches.collect()
    }

    /// The progress channels, by number.
    pub(crate) fn progress(&self) -> Vec<ProgressRow> {
        let has = |seen: &[bool], id: i64| seen.get(id as usize).copied().unwrap_or(false);
        let busy: Vec<&str> = self
            .channels
            .values()
            .filter(|row| has(&self.data_seen, row.channel))
            .map(|row| row.scope.as_str())
            .collect();
        self.progress
            .iter()
            .map(|(&channel, scope)| ProgressRow {
                channel,
                scope: scope.clone(),
                seen: has(&self.progress_seen, channel),
                busy: busy.contains(&scope.as_str()),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(id: i64, address: &[usize]) -> Structure {
        Structure::Operator { id, address: address.to_vec(), name: "x".to_owned() }
    }

    #[test]
    fn a_progress_channel_belongs_to_the_scope_of_the_operators_before_it() {
        let mut tables = Tables::new(Vec::new());
        let inner = Structure::Channel { id: 7, scope: vec![0, 3], source: (1, 0), target: (2, 0), of: String::new() };
        tables.learn(vec![
            inner,
            operator(5, &[0, 3, 1]),
            Structure::Progress { channel: 8 },
            operator(3, &[0, 3]),
            Structure::Progress { channel: 9 },
            operator(0, &[0]),
        ]);
        tables.see(&[Record::plain(1, Kind::Send, 7), Record::plain(2, Kind::ProgressSend, 9)]);
        let rows = tables.progress();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].scope.as_str(), rows[0].seen, rows[0].busy), ("0.3", false, true));
        assert_eq!((rows[1].scope.as_str(), rows[1].seen, rows[1].busy), ("0", true, false));
    }

    #[test]
    fn disagreement_is_noted() {
        let mut tables = Tables::new(Vec::new());
        tables.learn(vec![operator(5, &[0, 1])]);
        tables.learn(vec![operator(5, &[0, 1])]);
        assert!(tables.conflicts.is_empty());
        tables.learn(vec![operator(5, &[0, 2])]);
        assert_eq!(tables.conflicts, ["operator 5"]);
        assert_eq!(tables.operators[&5].address, "0.1");
    }
}
