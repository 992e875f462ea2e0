//! The way of a trace to a follower that listens: a thread that sends files of events and removes them once they are
//! in the follower's spool. Whoever hands a file over never waits.
//!
//! The frames are described in `pag_graph/sources/wire/frames.py`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, Mac};
use serde::Deserialize;
use sha2::Sha256;

use crate::Error;
use crate::connection::Connection;
use crate::tls::Identity;

/// Version of the frames, and of contract 1.
const VERSION: u32 = 1;
/// Longest body of a frame.
const MOST_BYTES: u32 = 16 << 20;
/// How often the sender says that it lives.
const MARK_EVERY: Duration = Duration::from_millis(100);
/// How long to wait before connecting again: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];
const SHORTEST_TOKEN: usize = 16;

const NONCE: u8 = 0;
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const TABLES: u8 = 3;
const EVENTS: u8 = 4;
const ACK: u8 = 5;
const LOST: u8 = 6;
const END: u8 = 7;
const MARK: u8 = 8;
const ERROR: u8 = 9;

/// Where a trace is sent, and with which token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) token_file: PathBuf,
}

/// A target that was looked at: nobody on the way can read what is sent, and the token is nobody else's.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tls: Option<Identity>,
    token: Vec<u8>,
}

impl Target {
    /// Looks at the address, the token, and who must have signed the follower's certificate: without that, what is sent
    /// is not encrypted.
    pub(crate) fn check(&self, authority: Option<&Path>) -> Result<Checked, Error> {
        let refused = |what: String| Error::Send(format!("{}: {what}", self.address));
        let addresses: Vec<_> = self.address.to_socket_addrs().map_err(|error| refused(error.to_string()))?.collect();
        // A name or an address, which may be in brackets, before the port.
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let tls = authority.map(|file| Identity::read(host, file).map_err(refused)).transpose()?;
        let leaves = addresses.iter().any(|address| !address.ip().is_loopback());
        if addresses.is_empty() || (leaves && tls.is_none()) {
            let hint = "frames are not encrypted; send to 127.0.0.1, or say Config::authority";
            return Err(refused(hint.to_owned()));
        }
        Ok(Checked { addresses, tls, token: read_token(&self.token_file)? })
    }
}

fn read_token(file: &Path) -> Result<Vec<u8>, Error> {
    let refused = |what: &str| Error::Send(format!("{}: {what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| refused(&error.to_string()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(file).map_err(|error| refused(&error.to_string()))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(refused("others may read this token; chmod 600"));
        }
    }
    let token = text.trim();
    if token.len() < SHORTEST_TOKEN {
        return Err(refused("a token has 16 or more letters, digits and signs"));
    }
    Ok(token.as_bytes().to_vec())
}

/// Who sends.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) trace_id: String,
    pub(crate) process: u32,
    pub(crate) processes: u32,
    pub(crate) workers: Vec<u32>,
}

/// A file of events that was published.
#[derive(Debug, Clone)]
pub(crate) struct Portion {
    pub(crate) path: PathBuf,
    pub(crate) worker: u32,
    /// Numbers of the first and the last event.
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// Stretches within, first and last, that were dropped.
    pub(crate) lost: Vec<(i64, i64)>,
}

#[derive(Debug)]
struct Waiting {
    portion: Portion,
    bytes: u64,
    published_ns: i64,
}

#[derive(Debug, Deserialize)]
struct Heard {
    next: BTreeMap<u32, i64>,
    #[serde(default)]
    ended: BTreeSet<u32>,
    credit: u64,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    code: String,
    text: String,
}

#[derive(Debug, Default)]
struct State {
    tables: Option<Arc<Vec<u8>>>,
    version: u64,
    /// What was not acknowledged, in the order in which it was published; `sent` of them went out by this connection.
    waiting: VecDeque<Waiting>,
    sent: usize,
    unheard: u64,
    bytes: u64,
    next: BTreeMap<u32, i64>,
    ended: BTreeSet<u32>,
    credit: u64,
    broken: bool,
    welcome: bool,
    refused: Option<String>,
    /// Per worker, the last number, and whether the log is whole; once nothing more comes.
    ends: Option<Vec<(u32, i64, bool)>>,
    closed: bool,
    stream: Option<TcpStream>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what ends a connection, unless all has ended.
    fn keep(&self, stream: TcpStream) -> io::Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.stream = Some(stream);
        Ok(())
    }

    /// Forgets what is in the spool, and removes its files.
    fn hear(&self, heard: Heard) {
        let mut state = self.lock();
        state.credit = heard.credit;
        state.ended.extend(heard.ended);
        state.next = heard.next;
        while let Some(first) = state.waiting.front() {
            if first.portion.last >= state.next.get(&first.portion.worker).copied().unwrap_or(0) {
                break;
            }
            let Some(gone) = state.waiting.pop_front() else { break };
            state.bytes -= gone.bytes;
            if state.sent > 0 {
                state.sent -= 1;
                state.unheard -= gone.bytes;
            }
            // What cannot be removed is read by nobody.
            let _ = fs::remove_file(&gone.portion.path);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn refuse(&self, body: &[u8]) {
        let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else { return };
        if matches!(refusal.code.as_str(), "STORE" | "TAKEN") {
            return;
        }
        let text: String = refusal.text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        eprintln!("pag-timely: the follower refused the trace: {text}");
        self.lock().refused = Some(text);
        self.changed.notify_all();
    }
}

/// Sends what a process records.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    folder: PathBuf,
    room: u64,
}

impl Sender {
    /// Starts the thread; `folder` is where the process records, and holds `room` bytes of events at most.
    pub(crate) fn start(target: Checked, process: Process, folder: PathBuf, room: u64) -> Result<Self, Error> {
        let shared = Arc::<Shared>::default();
        let link = Link { shared: Arc::clone(&shared), target, process };
        let thread = std::thread::Builder::new()
            .name("pag-timely:sender".to_owned())
            .spawn(move || link.run())
            .map_err(|error| Error::Send(format!("no thread for the sender: {error}")))?;
        Ok(Self { shared, thread: Some(thread), folder, room })
    }

    /// Whether no more may be added.
    pub(crate) fn full(&self) -> bool {
        self.shared.lock().bytes >= self.room
    }

    /// Whether the follower takes no more, ever.
    pub(crate) fn given_up(&self) -> bool {
        self.shared.lock().refused.is_some()
    }

    /// Waits until more may be added; not for ever, so that the caller can see whether anybody still works.
    pub(crate) fn wait(&self) {
        let state = self.shared.lock();
        if state.bytes >= self.room {
            drop(self.shared.changed.wait_timeout(state, MARK_EVERY));
        }
    }

    /// Takes the description of the trace, which was published anew.
    pub(crate) fn describe(&self) -> Result<(), Error> {
        let mut body = Vec::new();
        for name in ["meta.json", "operators.parquet", "channels.parquet", "workers.parquet"] {
            let path = self.folder.join(name);
            let content = fs::read(&path).map_err(Error::at(&path))?;
            body.push(name.len() as u8);
            body.extend(name.as_bytes());
            body.extend((content.len() as u32).to_le_bytes());
            body.extend(content);
        }
        let mut state = self.shared.lock();
        state.tables = Some(Arc::new(body));
        state.version += 1;
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Takes a file that was published.
    pub(crate) fn add(&self, portion: Portion) -> Result<(), Error> {
        let bytes = fs::metadata(&portion.path).map_err(Error::at(&portion.path))?.len();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut state = self.shared.lock();
        state.bytes += bytes;
        state.waiting.push_back(Waiting { portion, bytes, published_ns: now.as_nanos() as i64 });
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Nothing more comes: waits until the follower has all, for a while, and removes the folder if it does.
    pub(crate) fn finish(mut self, ends: Vec<(u32, i64, bool)>, within: Duration) {
        let until = Instant::now() + within;
        let mut state = self.shared.lock();
        let workers: Vec<u32> = ends.iter().map(|end| end.0).collect();
        state.ends = Some(ends);
        self.shared.changed.notify_all();
        let taken = loop {
            if workers.iter().all(|worker| state.ended.contains(worker)) {
                break true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.refused.is_some() {
                break false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        let left = state.waiting.len();
        drop(state);
        self.close();
        if !taken {
            eprintln!("pag-timely: the follower lacks {left} files of events; they stay in {}", self.folder.display());
        } else if fs::remove_dir_all(&self.folder).is_ok()
            && let Some(parent) = self.folder.parent()
            && self.folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FOLDER))
        {
            // The last process leaves the place of all of them.
            let _ = fs::remove_dir(parent);
        }
    }

    fn close(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        if let Some(stream) = state.stream.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread reports its failures itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.close();
    }
}

const FOLDER: &str = "process-";

/// Where a process records what it sends: processes do not share a folder, as each removes what was taken.
pub(crate) fn folder(path: &Path, process: u32, processes: u32) -> PathBuf {
    if processes == 1 { path.to_owned() } else { path.join(format!("{FOLDER}{process:05}")) }
}

/// The sender's thread.
struct Link {
    shared: Arc<Shared>,
    target: Checked,
    process: Process,
}

impl Link {
    fn run(self) {
        let [mut pause, longest] = PAUSES;
        let mut told = false;
        loop {
            match Connection::open(&self.target, |stream| self.shared.keep(stream)) {
                Ok(connection) => {
                    // A connection that breaks is begun again; where it was, the follower says.
                    let _ = self.talk(&connection);
                    connection.close();
                }
                // Who is not there may come; who shows a bad certificate should be heard of.
                Err(error) if error.kind() == io::ErrorKind::InvalidData && !told => {
                    eprintln!("pag-timely: no encrypted connection to the follower: {error}");
                    told = true;
                }
                Err(_) => {}
            }
            let mut state = self.shared.lock();
            if std::mem::take(&mut state.welcome) {
                pause = PAUSES[0];
            }
            if state.closed || state.refused.is_some() {
                return;
            }
            drop(self.shared.changed.wait_timeout_while(state, pause, |state| !state.closed));
            if self.shared.lock().closed {
                return;
            }
            pause = longest.min(2 * pause);
        }
    }

    fn talk(&self, connection: &Connection) -> io::Result<()> {
        let (kind, nonce) = receive(connection)?;
        if kind != NONCE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        send(connection, HELLO, &[&self.hello(&nonce)])?;
        let (kind, body) = receive(connection)?;
        if kind == ERROR {
            self.shared.refuse(&body);
        }
        if kind != WELCOME {
            return Err(io::ErrorKind::InvalidData.into());
        }
        {
            let mut state = self.shared.lock();
            (state.sent, state.unheard, state.broken, state.welcome) = (0, 0, false, true);
        }
        self.shared.hear(serde_json::from_slice(&body)?);
        connection.be_patient()?;
        std::thread::scope(|scope| {
            scope.spawn(|| self.listen(connection));
            let done = self.send_all(connection);
            connection.close();
            done
        })
    }

    fn hello(&self, nonce: &[u8]) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.target.token).expect("a key may have any length");
        mac.update(nonce);
        let mut body = mac.finalize().into_bytes().to_vec();
        let Process { trace_id, process, processes, workers } = &self.process;
        let content = serde_json::json!({
            "protocol": VERSION,
            "format_version": VERSION,
            "trace_id": trace_id,
            "process": process,
            "processes": processes,
            "workers": workers,
        });
        body.extend(content.to_string().into_bytes());
        body
    }

    /// Hears what the follower says.
    fn listen(&self, connection: &Connection) {
        while let Ok((kind, body)) = receive(connection) {
            match kind {
                ACK => match serde_json::from_slice(&body) {
                    Ok(heard) => self.shared.hear(heard),
                    Err(_) => break,
                },
                ERROR => self.shared.refuse(&body),
                _ => break,
            }
        }
        self.shared.lock().broken = true;
        self.shared.changed.notify_all();
    }

    fn send_all(&self, connection: &Connection) -> io::Result<()> {
        let mut described = 0;
        let mut ended = false;
        let mut expected = self.shared.lock().next.clone();
        let mut marked = Instant::now();
        loop {
            let mut state = self.shared.lock();
            if state.broken || state.closed || state.refused.is_some() {
                return Ok(());
            }
            if described < state.version {
                described = state.version;
                let tables = state.tables.clone();
                drop(state);
                if let Some(tables) = tables {
                    send(connection, TABLES, &[&tables])?;
                }
            } else if let Some((portion, published_ns, bytes)) = due(&state) {
                state.sent += 1;
                state.unheard += bytes;
                drop(state);
                send_portion(connection, &portion, published_ns, &mut expected)?;
            } else if let Some(ends) = state.ends.clone().filter(|_| !ended && state.sent == state.waiting.len()) {
                drop(state);
                ended = true;
                for (worker, last, finished) in ends {
                    send_lost(connection, worker, &gap(&expected, worker, last + 1))?;
                    let end = serde_json::json!({"worker": worker, "last": last, "finished": finished});
                    send(connection, END, &[end.to_string().as_bytes()])?;
                }
            } else {
                let waited = self.shared.changed.wait_timeout(state, MARK_EVERY);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            if marked.elapsed() >= MARK_EVERY {
                send(connection, MARK, &[])?;
                marked = Instant::now();
            }
        }
    }
}

/// The next file to send, if the follower gives credit for it.
fn due(state: &State) -> Option<(Portion, i64, u64)> {
    let Waiting { portion, bytes, published_ns } = state.waiting.get(state.sent)?;
    let allowed = state.unheard == 0 || state.unheard + bytes <= state.credit;
    allowed.then(|| (portion.clone(), *published_ns, *bytes))
}

fn send_portion(
    connection: &Connection,
    portion: &Portion,
    published_ns: i64,
    expected: &mut BTreeMap<u32, i64>,
) -> io::Result<()> {
    let content = fs::read(&portion.path)?;
    let mut lost = gap(expected, portion.worker, portion.first);
    lost.extend_from_slice(&portion.lost);
    let next = lost.iter().map(|stretch| stretch.1).fold(portion.last, i64::max) + 1;
    send_lost(connection, portion.worker, &lost)?;
    expected.insert(portion.worker, next);
    let head = [&portion.worker.to_le_bytes()[..], &portion.first.to_le_bytes(), &published_ns.to_le_bytes()].concat();
    send(connection, EVENTS, &[&head, &content])
}

/// What the follower expects before `first` is gone: what is not here any more is nowhere.
fn gap(expected: &BTreeMap<u32, i64>, worker: u32, first: i64) -> Vec<(i64, i64)> {
    let next = expected.get(&worker).copied().unwrap_or(0).max(1);
    if first > next { vec![(next, first - 1)] } else { Vec::new() }
}

fn send_lost(connection: &Connection, worker: u32, stretches: &[(i64, i64)]) -> io::Result<()> {
    if stretches.is_empty() {
        return Ok(());
    }
    let lost = serde_json::json!({"worker": worker, "lost": stretches});
    send(connection, LOST, &[lost.to_string().as_bytes()])
}

fn send(connection: &Connection, kind: u8, parts: &[&[u8]]) -> io::Result<()> {
    let length = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
    if length > MOST_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut whole = Vec::with_capacity(5 + length as usize);
    whole.extend(length.to_le_bytes());
    whole.push(kind);
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    connection.write_all(&whole)
}

fn receive(connection: &Connection) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    connection.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if length > MOST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length as usize];
    connection.read_exact(&mut body)?;
    Ok((head[4], body))
}
