//! Reads traces back, and checks what must hold for each.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod follower;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

/// A directory that goes away with its owner.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pag-timely-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a place for tests");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One row of any table.
pub type Row = BTreeMap<String, Field>;

/// Reads a Parquet file.
pub fn rows(file: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(file).expect("the file is there")).expect("it is Parquet");
    let rows = reader.get_row_iter(None).expect("it has rows");
    rows.map(|row| row.expect("it can be read").into_columns().into_iter().collect()).collect()
}

pub fn int(row: &Row, name: &str) -> Option<i64> {
    match &row[name] {
        Field::Null => None,
        Field::Int(value) => Some(i64::from(*value)),
        Field::Long(value) => Some(*value),
        other => panic!("{name} is no number: {other:?}"),
    }
}

pub fn text<'a>(row: &'a Row, name: &str) -> &'a str {
    match &row[name] {
        Field::Str(value) => value,
        other => panic!("{name} is no text: {other:?}"),
    }
}

/// A trace in memory.
pub struct Trace {
    pub meta: serde_json::Value,
    pub operators: Vec<Row>,
    pub channels: Vec<Row>,
    pub workers: Vec<Row>,
    pub events: Vec<Row>,
}

impl Trace {
    pub fn read(path: &Path) -> Self {
        let meta = std::fs::read(path.join("meta.json")).expect("there is a meta.json");
        let mut files: Vec<_> = std::fs::read_dir(path.join("events"))
            .expect("there is a folder of events")
            .map(|entry| entry.expect("it can be read").path())
            .filter(|file| file.extension().is_some_and(|extension| extension == "parquet"))
            .collect();
        files.sort();
        Self {
            meta: serde_json::from_slice(&meta).expect("it is JSON"),
            operators: rows(&path.join("operators.parquet")),
            channels: rows(&path.join("channels.parquet")),
            workers: rows(&path.join("workers.parquet")),
            events: files.iter().flat_map(|file| rows(file)).collect(),
        }
    }

    pub fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|event| text(event, "kind") == kind).count()
    }

    pub fn of(&self, worker: i64) -> impl Iterator<Item = &Row> {
        self.events.iter().filter(move |event| int(event, "worker") == Some(worker))
    }

    /// Numbers without gaps, times and epochs that never fall, stretches of empty steps in pairs.
    pub fn check_order(&self) {
        let mut last: HashMap<i64, (i64, i64, i64)> = HashMap::new();
        let mut idle: HashMap<i64, bool> = HashMap::new();
        for event in &self.events {
            let [worker, seq, t, epoch] = ["worker", "seq", "t_ns", "epoch"].map(|name| int(event, name).expect(name));
            let (before, time, round) = last.insert(worker, (seq, t, epoch)).unwrap_or((0, 0, 0));
            assert_eq!(seq, before + 1, "worker {worker} misses a row");
            assert!(t >= time, "worker {worker}, seq {seq}: time falls");
            assert!(epoch >= round, "worker {worker}, seq {seq}: the epoch falls");
            let inside = idle.entry(worker).or_default();
            let kind = text(event, "kind");
            assert_eq!(*inside, kind == "idle_stop", "worker {worker}, seq {seq}: {kind} in a stretch of empty steps");
            *inside = kind == "idle_start";
        }
        assert!(idle.values().all(|inside| !inside), "a stretch stays open");
    }

    /// Every receive has its send, every progress send a receive at every peer, and no message is early.
    pub fn check_messages(&self) {
        let offsets: HashMap<i64, i64> = self
            .workers
            .iter()
            .map(|row| (int(row, "worker").expect("a worker"), int(row, "offset_ns").expect("an offset")))
            .collect();
        let peers = offsets.len();
        let mut data = HashMap::new();
        let mut progress = HashMap::new();
        for event in &self.events {
            let number = |name| int(event, name).expect(name);
            let t = || number("t_ns") + offsets[&number("worker")];
            match text(event, "kind") {
                "send" => {
                    let key = (number("channel"), number("worker"), number("peer"), number("message_seq"));
                    assert!(data.insert(key, (t(), number("records"))).is_none(), "{key:?} was sent twice");
                }
                "progress_send" => {
                    assert_eq!(int(event, "peer"), None);
                    let key = (number("channel"), number("worker"), number("message_seq"));
                    assert!(progress.insert(key, (t(), 0)).is_none(), "{key:?} was sent twice");
                }
                _ => {}
            }
        }
        for event in &self.events {
            let number = |name| int(event, name).expect(name);
            let t = || number("t_ns") + offsets[&number("worker")];
            match text(event, "kind") {
                "receive" => {
                    let key = (number("channel"), number("peer"), number("worker"), number("message_seq"));
                    let (sent, records) = data.remove(&key).unwrap_or_else(|| panic!("{key:?} was never sent"));
                    assert_eq!(records, number("records"));
                    assert!(t() - sent >= -1_000, "{key:?} is early by {} ns", sent - t());
                }
                "progress_receive" => {
                    let key = (number("channel"), number("peer"), number("message_seq"));
                    let (sent, count) = progress.get_mut(&key).unwrap_or_else(|| panic!("{key:?} was never sent"));
                    *count += 1;
                    assert!(t() - *sent >= -1_000, "{key:?} is early by {} ns", *sent - t());
                }
                _ => {}
            }
        }
        assert!(data.is_empty(), "never received: {:?}", data.keys().take(3).collect::<Vec<_>>());
        let few: Vec<_> = progress.iter().filter(|(_, (_, count))| *count != peers).take(3).collect();
        assert!(few.is_empty(), "not received by all: {few:?}");
    }

    /// All that must hold for a run that ended well.
    pub fn check(&self) {
        assert_eq!(self.meta["complete"], true, "{}", self.meta);
        assert_eq!(self.meta["missing_progress"], serde_json::json!([]));
        assert_eq!(self.meta["conflicts"], serde_json::json!([]));
        assert_eq!(self.meta["workers"], self.workers.len());
        assert!(!self.events.is_empty());
        self.check_order();
        self.check_messages();
        let operators: HashMap<_, _> =
            self.operators.iter().map(|row| (int(row, "operator"), text(row, "name"))).collect();
        let channels: HashMap<_, _> =
            self.channels.iter().map(|row| (int(row, "channel"), text(row, "scope"))).collect();
        for event in &self.events {
            let operator = int(event, "operator");
            assert!(operator.is_none() || operators.contains_key(&operator), "unknown operator {operator:?}");
            let channel = int(event, "channel");
            let known = text(event, "kind").starts_with("progress") || channels.contains_key(&channel);
            assert!(channel.is_none() || known, "unknown channel {channel:?}");
        }
        for row in &self.channels {
            assert!(int(row, "source_operator").is_some() && int(row, "target_operator").is_some(), "{row:?}");
        }
    }
}

/// An example, as `cargo test` builds it.
pub fn example(name: &str) -> Command {
    let here = std::env::current_exe().expect("this program has a place");
    let program =
        here.parent().and_then(Path::parent).expect("it lies in target/PROFILE/deps").join("examples").join(name);
    assert!(program.exists(), "{} is not built; run `cargo build --examples` first", program.display());
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for a program, but not for ever.
pub fn wait(mut child: Child) -> Output {
    let deadline = Instant::now() + Duration::from_secs(120);
    while child.try_wait().expect("the child can be asked").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let output = child.wait_with_output().expect("it was killed");
            panic!("it did not end by itself: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output can be read")
}

/// Runs a program to its end; returns the checksum it prints.
pub fn checksum(command: &mut Command) -> String {
    let output = wait(command.spawn().expect("it starts"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
    find_checksum(&stdout).unwrap_or_else(|| panic!("no checksum in {stdout:?}"))
}

pub fn find_checksum(stdout: &str) -> Option<String> {
    Some(stdout.split("checksum ").nth(1)?.split_whitespace().next()?.to_owned())
}
