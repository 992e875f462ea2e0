//! What recording costs: runs `bfs` without a tracer, with events dropped, and with events written, in turn.
//!
//! `overhead --flood` measures instead how many events a second can be written, with operators that do nothing.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pag_timely::Config;
use parquet::file::reader::{FileReader, SerializedFileReader};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{Input, Probe};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut options = getopts::Options::new();
    options.optopt("", "runs", "runs of each kind [7]", "N");
    options.optflag("", "flood", "measure the writer instead");
    options.optopt("", "workers", "workers of the flood [1]", "N");
    options.optopt("", "seconds", "length of the flood [10]", "N");
    options.optflag("", "help", "print this help");
    let matches = options.parse(std::env::args().skip(1))?;
    if matches.opt_present("help") {
        let brief = "Measures what recording costs.\n\nUsage: overhead [OPTIONS] [-- ARGUMENTS OF bfs]\n\n\
            Without arguments: -w 2 --step --nodes 10000 --edges 20000 --batch 50 --rounds 300";
        println!("{}", options.usage(brief));
        return Ok(());
    }
    let place = std::env::temp_dir().join(format!("pag-timely-overhead-{}", std::process::id()));
    let done = if matches.opt_present("flood") {
        flood(&place, matches.opt_get_default("workers", 1)?, matches.opt_get_default("seconds", 10)?)
    } else {
        let default = "-w 2 --step --nodes 10000 --edges 20000 --batch 50 --rounds 300";
        let default = || default.split(' ').map(str::to_owned).collect();
        let arguments = if matches.free.is_empty() { default() } else { matches.free.clone() };
        compare(&place, &arguments, matches.opt_get_default("runs", 7)?)
    };
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    done
}

/// Rows and bytes of a trace's events.
fn size(trace: &Path) -> Result<(i64, u64), Failure> {
    let (mut rows, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(trace.join("events"))? {
        let file = File::open(entry?.path())?;
        bytes += file.metadata()?.len();
        rows += SerializedFileReader::new(file)?.metadata().file_metadata().num_rows();
    }
    Ok((rows, bytes))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs `bfs` once; returns the time of its workers and of the whole process, in seconds.
fn once(arguments: &[String], more: &[&str]) -> Result<[f64; 2], Failure> {
    let program = std::env::current_exe()?.with_file_name("bfs");
    let began = Instant::now();
    let output = Command::new(&program).args(arguments).args(more).output()?;
    let whole = began.elapsed().as_secs_f64();
    let stdout = String::from_utf8(output.stdout)?;
    let elapsed = stdout.split("elapsed_ns ").nth(1).and_then(|rest| rest.trim().parse::<f64>().ok());
    let Some(elapsed) = elapsed.filter(|_| output.status.success()) else {
        return Err(format!("{}: {stdout}{}", program.display(), String::from_utf8_lossy(&output.stderr)).into());
    };
    Ok([elapsed / 1e9, whole])
}

fn compare(place: &Path, arguments: &[String], runs: usize) -> Result<(), Failure> {
    let trace = place.to_string_lossy().into_owned();
    let kinds: [(&str, Vec<&str>); 3] = [
        ("off", vec![]),
        ("drop", vec!["--trace", &trace, "--sink", "drop"]),
        ("write", vec!["--trace", &trace, "--replace"]),
    ];
    println!("bfs {}", arguments.join(" "));
    once(arguments, &[])?;
    let mut times = [const { Vec::new() }; 3];
    for run in 0..runs {
        for turn in 0..3 {
            // Each kind is first, second and last in turn, so that nobody profits from what ran before.
            let kind = (run + turn) % 3;
            times[kind].push(once(arguments, &kinds[kind].1)?);
        }
        println!(
            "run {}: {}",
            run + 1,
            kinds.iter().zip(&times).map(|(k, t)| format!("{} {:.3} s  ", k.0, t[run][0])).collect::<String>()
        );
    }
    for (index, what) in ["workers", "whole process, the last flush included"].iter().enumerate() {
        println!("{what}:");
        for (kind, times_of_kind) in kinds.iter().zip(&times) {
            let mut ratios: Vec<f64> =
                times_of_kind.iter().zip(&times[0]).map(|(time, off)| time[index] / off[index]).collect();
            let mut seconds: Vec<f64> = times_of_kind.iter().map(|time| time[index]).collect();
            let (middle, seconds) = (median(&mut ratios), median(&mut seconds));
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            println!("  {:5} {seconds:.3} s, {middle:.3}x off (pairs from {least:.3}x to {most:.3}x)", kind.0);
        }
    }
    let (rows, bytes) = size(place)?;
    let mut seconds: Vec<f64> = times[2].iter().map(|time| time[1]).collect();
    report(rows, bytes, median(&mut seconds));
    Ok(())
}

fn report(rows: i64, bytes: u64, seconds: f64) {
    println!(
        "{rows} events, {:.2} bytes each, {:.2} million a second",
        bytes as f64 / rows as f64,
        rows as f64 / seconds / 1e6
    );
}

/// Writes as many events as possible for a while.
fn flood(place: &Path, workers: usize, seconds: u64) -> Result<(), Failure> {
    let path = place.to_owned();
    let began = Instant::now();
    let guards = timely::execute(timely::Config::process(workers), move |worker| {
        let tracer = pag_timely::attach(worker, Config::new(&path)).expect("the trace begins");
        let mut input = InputHandle::new();
        let probe = worker.dataflow(|scope| {
            let mut stream = scope.input_from(&mut input).container::<Vec<u64>>();
            for _ in 0..50 {
                stream = stream.map(|x| x);
            }
            stream.probe().0
        });
        let mut epoch = 0_u64;
        while began.elapsed() < Duration::from_secs(seconds) {
            input.send(epoch);
            epoch += 1;
            input.advance_to(epoch);
            while probe.less_than(input.time()) {
                worker.step();
            }
            if epoch.is_multiple_of(1_000) {
                tracer.tick();
            }
        }
        tracer.finish().expect("the trace is written");
    })?;
    for result in guards.join() {
        result?;
    }
    let whole = began.elapsed().as_secs_f64();
    let (rows, bytes) = size(place)?;
    report(rows, bytes, whole);
    let meta: serde_json::Value = serde_json::from_slice(&std::fs::read(place.join("meta.json"))?)?;
    println!("workers waited {} ms for the writer", meta["stalled_ns"].as_u64().unwrap_or(0) / 1_000_000);
    Ok(())
}
