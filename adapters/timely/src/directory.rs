//! The directory of a trace: small tables, `meta.json`, and what the processes of one run add to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::events::{optional, required};
use crate::meeting::{self, Meeting, Probe, WorkerRow};
use crate::record::Dropped;
use crate::tables::{ChannelRow, OperatorRow, ProgressRow, Tables};

/// Version of contract 1.
const FORMAT_VERSION: u32 = 1;
/// Version of Timely whose logs this crate reads.
const TIMELY: &str = "0.31";

const META: &str = "meta.json";
const EVENTS: &str = "events";
const PARTS: &str = "parts";
const INPUTS: &str = "inputs";

/// What one process knows; with several processes, a file in `parts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    trace_id: String,
    /// Number of the part; where a worker joined, not that of its process.
    process: u32,
    processes: u32,
    /// What the process has that no other one has.
    #[serde(default)]
    process_id: String,
    workers: Vec<WorkerRow>,
    probes: Vec<Probe>,
    operators: Vec<OperatorRow>,
    channels: Vec<ChannelRow>,
    progress: Vec<ProgressRow>,
    conflicts: Vec<String>,
    dropped: BTreeMap<String, u64>,
    stalled_ns: u64,
    #[serde(default)]
    lost: Vec<(u32, i64, i64)>,
    complete: bool,
}

/// A scope whose progress was not recorded, for its timestamp was not registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct MissingProgress {
    channel: i64,
    scope: String,
    name: Option<String>,
}

#[derive(Debug, Serialize)]
struct Source {
    system: &'static str,
    version: &'static str,
    format: &'static str,
}

/// The content of `meta.json`: contract 1, and what this crate adds.
#[derive(Debug, Serialize)]
struct Meta {
    format_version: u32,
    trace_id: String,
    source: Source,
    workers: usize,
    prepared: bool,
    aligned: bool,
    idle_logged: bool,
    dropped: BTreeMap<String, u64>,
    complete: bool,
    adapter_version: &'static str,
    processes: u32,
    missing_progress: Vec<MissingProgress>,
    conflicts: Vec<String>,
    clock_probes: Vec<Probe>,
    stalled_ns: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<(u32, i64, i64)>,
}

/// The directory of a trace, as one process sees it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    meeting: Meeting,
    last: Option<Part>,
}

impl Directory {
    /// Prepares the place of a trace; with several processes, process 0 does so before the others join.
    pub(crate) fn begin(path: &Path, replace: bool, meeting: &Meeting) -> Result<Self, Error> {
        make_room(path, replace)?;
        let events = path.join(EVENTS);
        fs::create_dir_all(&events).map_err(Error::at(&events))?;
        let mut directory = Self { path: path.to_owned(), meeting: meeting.clone(), last: None };
        if meeting.in_parts() {
            let parts = path.join(PARTS);
            fs::create_dir_all(&parts).map_err(Error::at(&parts))?;
        }
        directory.publish(&mut Tables::new(meeting.workers.clone()), Dropped::default(), Duration::ZERO, false)?;
        Ok(directory)
    }

    /// Joins the trace that another process began; begins an own one where its directory cannot be seen.
    pub(crate) fn join(path: &Path, replace: bool, meeting: &Meeting) -> Result<Self, Error> {
        if read_trace_id(path).as_deref() == Some(&meeting.trace_id) {
            return Ok(Self { path: path.to_owned(), meeting: meeting.clone(), last: None });
        }
        Self::begin(path, replace, meeting)
    }

    /// Enters a trace that others began, as the part of one worker.
    ///
    /// Returns how the worker stands in it; whoever entered from this process before is of the same process.
    pub(crate) fn enter(path: &Path, mut row: WorkerRow) -> Result<(Self, Meeting), Error> {
        let _lock = lock(path)?;
        let parts = read_parts(path, read_trace_id(path).as_deref())?;
        let Some(first) = parts.first() else {
            let message = "nobody can join it: it was begun without `Config::founders`";
            return Err(Error::Write(format!("{}: {message}", path.display())));
        };
        let mut workers: Vec<_> = parts.iter().flat_map(|part| part.workers.iter().cloned()).collect();
        if workers.iter().any(|known| known.worker == row.worker) {
            return Err(Error::Write(format!("{}: worker {} is in it already", path.display(), row.worker)));
        }
        let here = parts.iter().find(|part| part.process_id == meeting::process_id());
        // A part of founders lists those of all processes, and has the number of its own; one that joined lists itself.
        let process = here.map(|part| if part.workers.len() == 1 { part.workers[0].process } else { part.process });
        row.process =
            process.unwrap_or_else(|| workers.iter().map(|known| known.process + 1).max().unwrap_or_default());
        if workers.first().is_some_and(|known| known.clock_domain != row.clock_domain) {
            row.uncertainty_ns = None;
        }
        workers.clear();
        workers.push(row);
        let number = parts.iter().map(|part| part.process + 1).max().unwrap_or(1);
        let meeting = Meeting {
            trace_id: first.trace_id.clone(),
            process: number,
            processes: number + 1,
            workers,
            probes: Vec::new(),
            founded: true,
        };
        let directory = Self { path: path.to_owned(), meeting: meeting.clone(), last: None };
        // The number is taken as soon as others can see the part.
        let part = directory.part(&Tables::new(meeting.workers.clone()), Dropped::default(), Duration::ZERO, false);
        write_part(path, &part)?;
        Ok((directory, meeting))
    }

    /// The place of a file of events.
    pub(crate) fn events(&self, worker: u32, number: usize) -> PathBuf {
        self.path.join(EVENTS).join(format!("worker-{worker:07}-{number:07}.parquet"))
    }

    /// The place of a file of inputs, in a folder that is made when there are any.
    pub(crate) fn inputs(&self, worker: u32, number: usize) -> Result<PathBuf, Error> {
        let folder = self.path.join(INPUTS);
        fs::create_dir_all(&folder).map_err(Error::at(&folder))?;
        Ok(folder.join(format!("worker-{worker:07}-{number:07}.parquet")))
    }

    /// All workers of the run.
    pub(crate) fn workers(&self) -> Vec<WorkerRow> {
        self.meeting.workers.clone()
    }

    /// Writes what changed since the last time; says whether anything did.
    pub(crate) fn publish(
        &mut self,
        tables: &mut Tables,
        dropped: Dropped,
        stalled: Duration,
        complete: bool,
    ) -> Result<bool, Error> {
        let part = self.part(tables, dropped, stalled, complete);
        if self.last.as_ref() == Some(&part) {
            return Ok(false);
        }
        if !self.meeting.in_parts() {
            write_all(&self.path, std::slice::from_ref(&part))?;
        } else {
            let _lock = lock(&self.path)?;
            write_part(&self.path, &part)?;
            write_all(&self.path, &read_parts(&self.path, Some(&part.trace_id))?)?;
        }
        self.last = Some(part);
        Ok(true)
    }

    /// What this process knows by now.
    fn part(&self, tables: &Tables, dropped: Dropped, stalled: Duration, complete: bool) -> Part {
        let dropped = [
            ("shutdown", dropped.shutdown),
            ("communication_channel", dropped.communication_channel),
            ("text", dropped.text),
        ];
        Part {
            trace_id: self.meeting.trace_id.clone(),
            process: self.meeting.process,
            processes: self.meeting.processes,
            process_id: meeting::process_id(),
            workers: tables.workers.clone(),
            probes: self.meeting.probes.clone(),
            operators: tables.operators.values().cloned().collect(),
            channels: tables.channels.values().cloned().collect(),
            progress: tables.progress(),
            conflicts: tables.conflicts.clone(),
            dropped: dropped.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n)).collect(),
            stalled_ns: u64::try_from(stalled.as_nanos()).unwrap_or(u64::MAX),
            lost: tables.lost(),
            complete,
        }
    }
}

/// Writes a part; whoever does holds the lock.
fn write_part(path: &Path, part: &Part) -> Result<(), Error> {
    let file = path.join(PARTS).join(format!("process-{:05}.json", part.process));
    let text = serde_json::to_vec_pretty(part).map_err(|error| Error::Write(error.to_string()))?;
    replace_file(&file, &text)
}

/// Makes one trace of what several processes wrote into directories of their own.
///
/// Copy the content of `events` and of `parts` of all of them into one directory, then call this. Processes that share
/// a directory need no such step.
///
/// # Errors
///
/// If there are no parts in the directory, or parts of different runs, or the file system refuses.
pub fn assemble(path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    let _lock = lock(path)?;
    let parts = read_parts(path, None)?;
    if parts.is_empty() {
        return Err(Error::Write(format!("{} holds no parts of a trace", path.join(PARTS).display())));
    }
    if let Some(other) = parts.iter().find(|part| part.trace_id != parts[0].trace_id) {
        let message = format!("process {} is of another run than process {}", other.process, parts[0].process);
        return Err(Error::Write(format!("{}: {message}", path.join(PARTS).display())));
    }
    write_all(path, &parts)
}

/// Keeps other processes from merging at the same time; ends when the file is closed, even by a kill.
fn lock(path: &Path) -> Result<File, Error> {
    let file = path.join(PARTS).join("lock");
    let lock = File::create(&file).map_err(Error::at(&file))?;
    lock.lock().map_err(Error::at(&file))?;
    Ok(lock)
}

/// Reads the parts of one run, by process.
fn read_parts(path: &Path, trace_id: Option<&str>) -> Result<Vec<Part>, Error> {
    let parts = path.join(PARTS);
    let mut found = Vec::new();
    for entry in fs::read_dir(&parts).map_err(Error::at(&parts))? {
        let file = entry.map_err(Error::at(&parts))?.path();
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read(&file).map_err(Error::at(&file))?;
        let part: Part =
            serde_json::from_slice(&text).map_err(|error| Error::Write(format!("{}: {error}", file.display())))?;
        if trace_id.is_none_or(|id| id == part.trace_id) {
            found.push(part);
        }
    }
    found.sort_by_key(|part| part.process);
    Ok(found)
}

/// Writes the tables that all parts make together; `meta.json` last, for it makes the directory a trace.
fn write_all(path: &Path, parts: &[Part]) -> Result<(), Error> {
    let first = &parts[0];
    let mut operators = BTreeMap::new();
    let mut channels = BTreeMap::new();
    let mut workers: BTreeMap<u32, &WorkerRow> = BTreeMap::new();
    let mut dropped = BTreeMap::<String, u64>::new();
    let mut conflicts = BTreeSet::new();
    for part in parts {
        for row in &part.operators {
            if *operators.entry(row.operator).or_insert(row) != row {
                conflicts.insert(format!("operator {}", row.operator));
            }
        }
        for row in &part.channels {
            if *channels.entry(row.channel).or_insert(row) != row {
                conflicts.insert(format!("channel {}", row.channel));
            }
        }
        for row in &part.workers {
            // A process knows its own workers best.
            if row.process == part.process || part.workers.len() == 1 {
                workers.insert(row.worker, row);
            } else {
                workers.entry(row.worker).or_insert(row);
            }
        }
        for (reason, count) in &part.dropped {
            *dropped.entry(reason.clone()).or_default() += count;
        }
        conflicts.extend(part.conflicts.iter().cloned());
    }
    let workers: Vec<_> = workers.into_values().collect();
    let operators: Vec<_> = operators.into_values().collect();
    let channels: Vec<_> = channels.into_values().collect();
    write_operators(&path.join("operators.parquet"), &operators)?;
    write_channels(&path.join("channels.parquet"), &channels, &operators)?;
    write_workers(&path.join("workers.parquet"), &workers)?;
    // Each that joins makes it one part more.
    let expected = parts.iter().map(|part| part.processes as usize).max().unwrap_or(1);
    let processes = workers.iter().map(|row| row.process).collect::<BTreeSet<_>>().len() as u32;
    let meta = Meta {
        format_version: FORMAT_VERSION,
        trace_id: first.trace_id.clone(),
        source: Source { system: "timely", version: TIMELY, format: env!("CARGO_PKG_NAME") },
        workers: workers.len(),
        prepared: false,
        aligned: workers.iter().all(|row| row.uncertainty_ns.is_some()),
        idle_logged: true,
        dropped,
        complete: parts.len() == expected && parts.iter().all(|part| part.complete),
        adapter_version: env!("CARGO_PKG_VERSION"),
        processes,
        missing_progress: missing_progress(parts, &operators),
        conflicts: conflicts.into_iter().collect(),
        clock_probes: first.probes.clone(),
        stalled_ns: parts.iter().map(|part| part.stalled_ns).sum(),
        lost: parts.iter().flat_map(|part| part.lost.iter().copied()).collect(),
    };
    let mut text = serde_json::to_vec_pretty(&meta).map_err(|error| Error::Write(error.to_string()))?;
    text.push(b'\n');
    replace_file(&path.join(META), &text)
}

/// Progress channels on which nobody saw a message, though data moved in their scope.
fn missing_progress(parts: &[Part], operators: &[&OperatorRow]) -> Vec<MissingProgress> {
    let mut rows: BTreeMap<i64, (&str, bool, bool)> = BTreeMap::new();
    for row in parts.iter().flat_map(|part| &part.progress) {
        let (_, seen, busy) = rows.entry(row.channel).or_insert((&row.scope, false, false));
        *seen |= row.seen;
        *busy |= row.busy;
    }
    rows.into_iter()
        .filter(|(_, (_, seen, busy))| *busy && !*seen)
        .map(|(channel, (scope, _, _))| MissingProgress {
            channel,
            scope: scope.to_owned(),
            name: operators.iter().find(|row| row.address == scope).map(|row| row.name.clone()),
        })
        .collect()
}

fn read_trace_id(path: &Path) -> Option<String> {
    let meta: serde_json::Value = serde_json::from_slice(&fs::read(path.join(META)).ok()?).ok()?;
    Some(meta.get("trace_id")?.as_str()?.to_owned())
}

/// Leaves nothing at `path`, or an empty directory; only a trace is ever removed.
fn make_room(path: &Path, replace: bool) -> Result<(), Error> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(_) => return Err(Error::Exists(path.to_owned())),
        Ok(mut entries) => {
            if entries.next().is_none() {
                return Ok(());
            }
        }
    }
    if !replace || read_trace_id(path).is_none() {
        return Err(Error::Exists(path.to_owned()));
    }
    fs::remove_dir_all(path).map_err(Error::at(path))
}

/// Puts `content` in the place of a file at once.
fn replace_file(file: &Path, content: &[u8]) -> Result<(), Error> {
    let hidden = hidden(file);
    fs::write(&hidden, content).map_err(Error::at(&hidden))?;
    fs::rename(&hidden, file).map_err(Error::at(file))
}

fn hidden(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    file.with_file_name(name)
}

type Group<'a> = SerializedRowGroupWriter<'a, File>;

/// Puts a small table in the place of a file at once.
pub(crate) fn replace_table(
    file: &Path,
    schema: &str,
    write: impl FnOnce(&mut Group<'_>) -> Result<(), ParquetError>,
) -> Result<(), Error> {
    let hidden = hidden(file);
    let out = File::create(&hidden).map_err(Error::at(&hidden))?;
    let written = || -> Result<(), ParquetError> {
        let properties = WriterProperties::builder().set_compression(Compression::LZ4_RAW).build();
        let schema = Arc::new(parse_message_type(schema)?);
        let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        write(&mut group)?;
        group.close()?;
        writer.close()?;
        Ok(())
    }();
    written.map_err(|error| Error::Write(format!("{}: {error}", hidden.display())))?;
    fs::rename(&hidden, file).map_err(Error::at(file))
}

fn text<'a>(values: impl Iterator<Item = &'a str>) -> Vec<ByteArray> {
    values.map(ByteArray::from).collect()
}

/// Splits into values and levels.
pub(crate) fn split<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let mut present = Vec::new();
    let levels = values.map(|value| {
        let level = i16::from(value.is_some());
        present.extend(value);
        level
    });
    let levels = levels.collect();
    (present, levels)
}

fn write_operators(file: &Path, rows: &[&OperatorRow]) -> Result<(), Error> {
    let schema = "message schema {
        REQUIRED INT64 operator;
        REQUIRED BYTE_ARRAY address (UTF8);
        REQUIRED BYTE_ARRAY name (UTF8);
    }";
    replace_table(file, schema, |group| {
        required::<Int64Type>(group, &rows.iter().map(|row| row.operator).collect::<Vec<_>>())?;
        required::<ByteArrayType>(group, &text(rows.iter().map(|row| row.address.as_str())))?;
        required::<ByteArrayType>(group, &text(rows.iter().map(|row| row.name.as_str())))
    })
}

fn write_channels(file: &Path, rows: &[&ChannelRow], operators: &[&OperatorRow]) -> Result<(), Error> {
    let schema = "message schema {
        REQUIRED INT64 channel;
        REQUIRED BYTE_ARRAY scope (UTF8);
        OPTIONAL INT64 source_operator;
        OPTIONAL INT64 source_port;
        OPTIONAL INT64 target_operator;
        OPTIONAL INT64 target_port;
        OPTIONAL BYTE_ARRAY type (UTF8);
    }";
    let known: BTreeMap<&str, i64> = operators.iter().map(|row| (row.address.as_str(), row.operator)).collect();
    // Index 0 is the boundary of the scope itself: what enters or leaves it.
    let operator = |scope: &str, index: usize| match index {
        0 => known.get(scope).copied(),
        _ => known.get(format!("{scope}.{index}").as_str()).copied(),
    };
    replace_table(file, schema, |group| {
        required::<Int64Type>(group, &rows.iter().map(|row| row.channel).collect::<Vec<_>>())?;
        required::<ByteArrayType>(group, &text(rows.iter().map(|row| row.scope.as_str())))?;
        for end in [|row: &ChannelRow| row.source, |row: &ChannelRow| row.target] {
            let (values, levels) = split(rows.iter().map(|row| operator(&row.scope, end(row).0)));
            optional::<Int64Type>(group, &values, &levels)?;
            let (values, levels) = split(rows.iter().map(|row| Some(end(row).1 as i64)));
            optional::<Int64Type>(group, &values, &levels)?;
        }
        let (values, levels) = split(
            rows.iter().map(|row| Some(row.r#type.as_str()).filter(|name| !name.is_empty()).map(ByteArray::from)),
        );
        optional::<ByteArrayType>(group, &values, &levels)
    })
}

fn write_workers(file: &Path, rows: &[&WorkerRow]) -> Result<(), Error> {
    let schema = "message schema {
        REQUIRED INT32 worker;
        REQUIRED INT64 process;
        OPTIONAL BYTE_ARRAY host (UTF8);
        REQUIRED BYTE_ARRAY clock_domain (UTF8);
        REQUIRED INT64 offset_ns;
        OPTIONAL INT64 uncertainty_ns;
    }";
    replace_table(file, schema, |group| {
        required::<Int32Type>(group, &rows.iter().map(|row| row.worker as i32).collect::<Vec<_>>())?;
        required::<Int64Type>(group, &rows.iter().map(|row| i64::from(row.process)).collect::<Vec<_>>())?;
        let (values, levels) = split(rows.iter().map(|row| row.host.as_deref().map(ByteArray::from)));
        optional::<ByteArrayType>(group, &values, &levels)?;
        required::<ByteArrayType>(group, &text(rows.iter().map(|row| row.clock_domain.as_str())))?;
        required::<Int64Type>(group, &rows.iter().map(|row| row.offset_ns).collect::<Vec<_>>())?;
        let (values, levels) = split(rows.iter().map(|row| row.uncertainty_ns));
        optional::<Int64Type>(group, &values, &levels)
    })
}
