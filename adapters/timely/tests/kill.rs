//! A program that is killed leaves a trace that can be read.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pag_timely::{Config, Schedule};
use support::{Place, Trace, int, rows, text};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::{Exchange, Input, Probe};

const PLACE: &str = "PAG_TIMELY_TEST_PLACE";

fn unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_nanos() as i64
}

/// The program that is killed: says which epoch of which worker is over.
#[test]
#[ignore = "it runs until it is killed, as the child of another test"]
fn victim() {
    let Some(path) = std::env::var_os(PLACE) else { return };
    timely::execute(timely::Config::process(2), move |worker| {
        let tracer = pag_timely::attach(worker, Config::new(&path)).expect("it begins");
        let inputs = tracer.inputs(Schedule::closed(1 << 40));
        let mut input = InputHandle::new();
        let probe =
            worker.dataflow(|scope| scope.input_from(&mut input).container::<Vec<u64>>().exchange(|x| *x).probe().0);
        for epoch in 0_u64.. {
            inputs.given(epoch);
            (0..100).for_each(|x| input.send(x));
            input.advance_to(epoch + 1);
            while probe.less_than(input.time()) {
                worker.step_or_park(None);
            }
            inputs.done(epoch + 1);
            let ended = tracer.tick();
            println!("ended {} {ended} {}", worker.index(), unix_ns());
            // Rare and frequent epochs; in a long pause everything before it must be found.
            let pause = [0, 1, 0, 3, 0, 0, 40][epoch as usize % 7];
            std::thread::sleep(Duration::from_millis(pause));
        }
    })
    .expect("workers start");
}

/// Sleeps in small pieces; returns how late the latest of them was, for on a crowded machine the writer is late too.
fn sleep(pause: Duration) -> Duration {
    const PIECE: Duration = Duration::from_millis(5);
    let began = Instant::now();
    let mut starved = Duration::ZERO;
    while began.elapsed() < pause {
        let before = Instant::now();
        std::thread::sleep(PIECE);
        starved = starved.max(before.elapsed().saturating_sub(PIECE));
    }
    starved
}

/// How many inputs each worker saw done.
fn done(path: &Path) -> [i64; 2] {
    let mut done = [0; 2];
    let Ok(files) = std::fs::read_dir(path.join("inputs")) else { return done };
    let files = files.map(|entry| entry.expect("it can be read").path());
    for row in files.filter(|file| file.extension().is_some_and(|end| end == "parquet")).flat_map(|file| rows(&file)) {
        let worker = int(&row, "worker").expect("a worker") as usize;
        done[worker] = done[worker].max(int(&row, "frontier").unwrap_or_default());
    }
    done
}

/// Kills a run after a while; returns how many events it left.
fn kill_after(pause: Duration, path: &Path) -> usize {
    let mut child = Command::new(std::env::current_exe().expect("this program has a place"))
        .args(["--exact", "victim", "--ignored", "--nocapture"])
        .env(PLACE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let stdout = child.stdout.take().expect("its output is piped");
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        // The first line of a child follows what the test harness prints.
        let words = |line: String| {
            let mut words = line.split("ended ").nth(1)?.split(' ').map(str::parse::<i64>);
            Some([words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?])
        };
        lines.filter_map(words).collect::<Vec<_>>()
    });
    let starved = sleep(pause);
    let killed = unix_ns();
    child.kill().expect("it can be killed");
    child.wait().expect("it is dead");
    let ended = reader.join().expect("the output was read");
    if !path.join("meta.json").exists() {
        assert!(ended.is_empty(), "a run that had begun left no trace");
        return 0;
    }
    let trace = Trace::read(path);
    assert_eq!(trace.meta["complete"], false);
    trace.check_order();
    let (mut last, mut rounds) = ([-1; 2], [0; 2]);
    for event in trace.events.iter().filter(|event| text(event, "kind") == "epoch_end") {
        let worker = int(event, "worker").expect("a worker") as usize;
        last[worker] = last[worker].max(int(event, "epoch").expect("an epoch"));
        rounds[worker] += 1;
    }
    let done = done(path);
    assert!(done[0] >= rounds[0] && done[1] >= rounds[1], "the log knows of rounds {rounds:?}, its inputs of {done:?}");
    for [worker, epoch, at] in ended {
        let age = Duration::from_nanos((killed - at).max(0) as u64);
        assert!(
            age < Duration::from_secs(1) + 4 * starved || epoch <= last[worker as usize],
            "worker {worker} ended epoch {epoch} {age:?} before it was killed, but the trace ends with {last:?}"
        );
    }
    trace.events.len()
}

#[test]
fn killed_at_any_moment() {
    let kills = if std::env::var("PAG_PROVE").is_ok_and(|value| value == "1") { 100 } else { 4 };
    let place = Place::new("kill");
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").subsec_nanos();
    let mut left = 0;
    for kill in 0..kills {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let pause = Duration::from_millis(u64::from(random % 2_500));
        let path = place.0.join(kill.to_string());
        // The last kill is late, so that there is something to find.
        let pause = if kill + 1 == kills { Duration::from_millis(2_500) } else { pause };
        left += kill_after(pause, &path);
    }
    assert!(left > 0, "no run left an event");
}
