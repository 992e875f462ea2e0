//! A follower that listens, keeps what comes, and stops when it is told to.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use parquet::file::reader::{FileReader, SerializedFileReader};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sha2::Sha256;

use super::Row;

pub const TOKEN: &str = "0123456789abcdef";

/// What came.
#[derive(Default)]
pub struct Received {
    pub hello: Option<serde_json::Value>,
    pub meta: Option<serde_json::Value>,
    pub events: Vec<Row>,
    pub lost: Vec<(i64, i64, i64)>,
    pub next: BTreeMap<i64, i64>,
    /// Per worker, the number of the last event.
    pub ended: BTreeMap<i64, i64>,
    pub finished: bool,
    pub repeated: usize,
}

/// A follower in this process.
pub struct Follower {
    pub address: String,
    pub received: Arc<Mutex<Received>>,
    /// While it stands it reads nothing.
    pub stands: Arc<AtomicBool>,
    /// Connections that are cut after so many portions, each.
    pub cut_after: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
}

impl Follower {
    pub fn start() -> Self {
        Self::serve(None)
    }

    /// Starts one that speaks TLS.
    #[allow(dead_code, reason = "not every test program has an encrypted connection")]
    pub fn encrypted(config: Arc<ServerConfig>) -> Self {
        Self::serve(Some(config))
    }

    fn serve(encryption: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let follower = Self {
            address: listener.local_addr().expect("it has an address").to_string(),
            received: Arc::default(),
            stands: Arc::default(),
            cut_after: Arc::new(AtomicUsize::new(usize::MAX)),
            connections: Arc::default(),
        };
        let received = Arc::clone(&follower.received);
        let stands = Arc::clone(&follower.stands);
        let (cut_after, connections) = (Arc::clone(&follower.cut_after), Arc::clone(&follower.connections));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                connections.fetch_add(1, Ordering::Relaxed);
                let cut_after = cut_after.load(Ordering::Relaxed);
                // Whoever is gone has been read as far as he wrote.
                let _ = match &encryption {
                    None => talk(&mut stream, &received, &stands, cut_after),
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).expect("the certificate is good");
                        talk(&mut StreamOwned::new(connection, stream), &received, &stands, cut_after)
                    }
                };
            }
        });
        follower
    }
}

/// Writes a token; returns its file.
pub fn token_file(folder: &Path) -> PathBuf {
    use std::os::unix::fs::OpenOptionsExt;
    let path = folder.join("token");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    file.as_mut().expect("it can be made").write_all(TOKEN.as_bytes()).expect("it can be written");
    path
}

fn talk(
    stream: &mut (impl Read + Write),
    received: &Mutex<Received>,
    stands: &AtomicBool,
    cut_after: usize,
) -> io::Result<()> {
    let nonce = [7; 32];
    say(stream, 0, &nonce)?;
    let (kind, body) = hear(stream)?;
    assert_eq!(kind, 1, "it says who it is");
    let mut mac = Hmac::<Sha256>::new_from_slice(TOKEN.as_bytes()).expect("a key may have any length");
    mac.update(&nonce);
    mac.verify_slice(&body[..32]).expect("it knows the token");
    received.lock().expect("nobody panicked").hello = serde_json::from_slice(&body[32..]).ok();
    say(stream, 2, &answer(received))?;
    let mut portions = 0;
    loop {
        while stands.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (kind, body) = hear(stream)?;
        if kind == 8 {
            continue;
        }
        if kind == 4 {
            portions += 1;
            if portions > cut_after {
                return Ok(());
            }
        }
        take(&mut received.lock().expect("nobody panicked"), kind, &body);
        say(stream, 5, &answer(received))?;
    }
}

fn take(received: &mut Received, kind: u8, body: &[u8]) {
    match kind {
        3 => {
            let length = body[0] as usize;
            assert_eq!(&body[1..=length], b"meta.json");
            let begin = length + 5;
            let size = u32::from_le_bytes(body[length + 1..begin].try_into().expect("four bytes")) as usize;
            received.meta = serde_json::from_slice(&body[begin..begin + size]).ok();
        }
        4 => {
            let reader = SerializedFileReader::new(Bytes::copy_from_slice(&body[20..])).expect("it is Parquet");
            for row in reader.get_row_iter(None).expect("it has rows") {
                let row: Row = row.expect("it can be read").into_columns().into_iter().collect();
                let [worker, seq] = ["worker", "seq"].map(|name| super::int(&row, name).expect(name));
                let next = received.next.entry(worker).or_insert(1);
                if seq < *next {
                    received.repeated += 1;
                    continue;
                }
                *next = seq + 1;
                received.events.push(row);
            }
        }
        6 => {
            let lost: serde_json::Value = serde_json::from_slice(body).expect("it is JSON");
            let worker = lost["worker"].as_i64().expect("a worker");
            for stretch in lost["lost"].as_array().expect("a list") {
                let ends = (worker, stretch[0].as_i64().expect("a number"), stretch[1].as_i64().expect("a number"));
                if !received.lost.contains(&ends) {
                    received.lost.push(ends);
                }
            }
        }
        7 => {
            let end: serde_json::Value = serde_json::from_slice(body).expect("it is JSON");
            received.ended.insert(end["worker"].as_i64().expect("a worker"), end["last"].as_i64().expect("a number"));
            received.finished = end["finished"] == true;
        }
        other => panic!("a frame of kind {other} came"),
    }
}

fn answer(received: &Mutex<Received>) -> Vec<u8> {
    let received = received.lock().expect("nobody panicked");
    let answer = serde_json::json!({"next": received.next, "ended": received.ended.keys().collect::<Vec<_>>(), "credit": 1 << 20});
    answer.to_string().into_bytes()
}

fn say(stream: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    stream.write_all(&[&(body.len() as u32).to_le_bytes()[..], &[kind], body].concat())?;
    stream.flush()
}

fn hear(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize];
    stream.read_exact(&mut body)?;
    Ok((head[4], body))
}
