//! What all examples share: arguments, tracing, seeded numbers.
#![allow(dead_code, reason = "each example uses a part of it")]

use std::cell::Cell;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pag_timely::{Activities, Activity, Arrivals, Config, Error, Inputs, Schedule, Sink, Tracer};
use timely::worker::Worker;

/// A number that can be given on the command line.
pub struct Size(pub &'static str, pub u64, pub &'static str);

/// A word, or a list of numbers, that can be given on the command line.
pub struct Word(pub &'static str, pub &'static str, pub &'static str);

/// The arguments of an example.
#[derive(Clone)]
pub struct Arguments {
    sizes: Vec<(&'static str, u64)>,
    words: Vec<(&'static str, String)>,
    pub seed: u64,
    pub trace: Option<PathBuf>,
    pub process: usize,
    sink: Sink,
    replace: bool,
    send: Option<(String, PathBuf)>,
    authority: Option<PathBuf>,
    patience: Option<Duration>,
    step: bool,
    arrivals: Option<Arrivals>,
    timely: Option<timely::Config>,
}

impl Arguments {
    /// Reads the command line; prints the help or what is wrong, and ends the program, if there is reason to.
    pub fn parse(about: &str, workers: usize, sizes: &[Size]) -> Self {
        Self::parse_with(about, workers, sizes, &[])
    }

    /// Reads the command line of an example that takes words too.
    pub fn parse_with(about: &str, workers: usize, sizes: &[Size], words: &[Word]) -> Self {
        let mut options = getopts::Options::new();
        timely::Config::install_options(&mut options);
        for Size(name, default, meaning) in sizes {
            options.optopt("", name, &format!("{meaning} [{default}]"), "N");
        }
        for Word(name, default, meaning) in words {
            options.optopt("", name, &format!("{meaning} [{default}]"), "WORD");
        }
        options.optopt("", "seed", "seed of all random numbers [1]", "N");
        options.optopt("", "trace", "directory of the trace; without it nothing is recorded", "DIR");
        options.optopt("", "sink", "what becomes of recorded events: drop or write [write]", "SINK");
        options.optflag("", "replace", "replace a trace that is there");
        options.optopt("", "send", "a follower that listens; what it has not taken stays in the trace", "HOST:PORT");
        options.optopt("", "token-file", "with --send: file of mode 600 with the follower's token", "FILE");
        options.optopt("", "patience", "with --send: wait in the end until the follower has all (10)", "SECONDS");
        options.optopt("", "authority", "with --send: who signed the follower's certificate (feature tls)", "FILE");
        options.optflag("", "step", "spin with step instead of parking with step_or_park");
        options.optflag("", "arrivals", "record when messages of other processes arrived");
        options.optflag("", "help", "print this help");
        let program = std::env::args().next().unwrap_or_default();
        let usage =
            options.usage(&format!("{about}\n\nUsage: {program} [OPTIONS]\n\nWorkers: {workers} unless -w is given."));
        let parsed = options.parse(std::env::args().skip(1)).map_err(|error| error.to_string()).and_then(|matches| {
            if matches.opt_present("help") {
                println!("{usage}");
                std::process::exit(0);
            }
            if let Some(stray) = matches.free.first() {
                return Err(format!("unexpected argument {stray:?}"));
            }
            let number = |name: &str, default: u64| {
                matches.opt_get_default(name, default).map_err(|error| format!("--{name}: {error}"))
            };
            let mut timely = timely::Config::from_matches(&matches)?;
            if !matches.opt_present("w") && !matches.opt_present("n") && workers > 1 {
                timely.communication = timely::CommunicationConfig::Process(workers);
            }
            Ok(Self {
                sizes: sizes.iter().map(|size| Ok((size.0, number(size.0, size.1)?))).collect::<Result<_, String>>()?,
                words: words
                    .iter()
                    .map(|word| (word.0, matches.opt_str(word.0).unwrap_or_else(|| word.1.to_owned())))
                    .collect(),
                seed: number("seed", 1)?,
                trace: matches.opt_str("trace").map(PathBuf::from),
                process: number("p", 0)? as usize,
                sink: match matches.opt_str("sink").as_deref() {
                    None | Some("write") => Sink::Write,
                    Some("drop") => Sink::Discard,
                    Some(other) => return Err(format!("--sink: {other:?} is neither drop nor write")),
                },
                replace: matches.opt_present("replace"),
                send: match (matches.opt_str("send"), matches.opt_str("token-file")) {
                    (Some(address), Some(file)) => Some((address, PathBuf::from(file))),
                    (None, None) => None,
                    _ => return Err("--send and --token-file: give both, or neither".to_owned()),
                },
                authority: matches.opt_str("authority").map(PathBuf::from),
                patience: matches
                    .opt_get("patience")
                    .map_err(|error: ParseIntError| format!("--patience: {error}"))?
                    .map(Duration::from_secs),
                step: matches.opt_present("step"),
                arrivals: matches.opt_present("arrivals").then(Arrivals::new),
                timely: Some(timely),
            })
        });
        parsed.unwrap_or_else(|error| {
            eprintln!("{error}\n\n{usage}");
            std::process::exit(2);
        })
    }

    /// A number, by its name.
    pub fn size(&self, name: &str) -> u64 {
        self.sizes.iter().find(|size| size.0 == name).expect("the example names its numbers").1
    }

    /// A word, by its name.
    pub fn word(&self, name: &str) -> &str {
        &self.words.iter().find(|word| word.0 == name).expect("the example names its words").1
    }

    /// A list of numbers, by its name; ends the program if it is none.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        let parts = self.word(name).split(',').filter(|part| !part.is_empty());
        let read = parts.map(|part| part.trim().parse().map_err(|error| format!("--{name}: {part:?}: {error}")));
        read.collect::<Result<_, _>>().unwrap_or_else(|message| self.refuse(&message))
    }

    /// Ends the program, for its arguments do not fit together.
    pub fn refuse(&self, message: &str) -> ! {
        eprintln!("{message}");
        std::process::exit(2);
    }

    /// Number of workers of all processes.
    pub fn workers(&self) -> usize {
        match self.timely.as_ref().map(|config| &config.communication) {
            Some(
                timely::CommunicationConfig::Process(threads) | timely::CommunicationConfig::ProcessBinary(threads),
            ) => *threads,
            Some(timely::CommunicationConfig::Cluster { threads, addresses, .. }) => threads * addresses.len(),
            Some(timely::CommunicationConfig::Thread) | None => 1,
        }
    }

    /// Runs `program` on every worker, and prints what worker 0 makes of it; ends the program if there can be no trace.
    pub fn run<T: Send + 'static>(
        mut self,
        program: impl Fn(&mut Worker, &Run) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let config = self.timely.take().expect("it runs once");
        let arrivals = self.arrivals.clone();
        let whole = move |worker: &mut Worker| {
            let run = Run::begin(worker, self.clone())?;
            let result = program(worker, &run);
            run.end(worker)?;
            Ok(result)
        };
        let guards = match arrivals {
            Some(arrivals) => arrivals.execute(config, whole),
            None => timely::execute(config, whole),
        };
        let guards = guards.unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(1);
        });
        let results: Vec<Result<T, Error>> =
            guards.join().into_iter().map(|result| result.expect("a worker panicked")).collect();
        // All workers have left by now, so that no other process loses its connection. Who failed says more than who
        // heard of it.
        let cause = |result: &&Result<T, Error>| matches!(result, Err(error) if !matches!(error, Error::Elsewhere(_)));
        let failed = results.iter().find(cause).or_else(|| results.iter().find(|result| result.is_err()));
        if let Some(Err(error)) = failed {
            eprintln!("{error}");
            std::process::exit(1);
        }
        results.into_iter().flatten().collect()
    }
}

/// Whether operators keep their core busy or leave it to others.
#[derive(Clone, Copy)]
pub enum Work {
    Spin,
    Sleep,
}

impl Work {
    /// Reads the word `work` of the command line.
    pub fn read(arguments: &Arguments) -> Self {
        match arguments.word("work") {
            "spin" => Self::Spin,
            "sleep" => Self::Sleep,
            other => arguments.refuse(&format!("--work: {other:?} is neither spin nor sleep")),
        }
    }

    /// Works until so much time has passed.
    pub fn until(self, begun: Instant, whole: Duration) {
        while let Some(rest) = whole.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()) {
            match self {
                Self::Spin => std::hint::spin_loop(),
                Self::Sleep => std::thread::sleep(rest),
            }
        }
    }
}

/// A worker's run of an example.
pub struct Run {
    pub arguments: Arguments,
    tracer: Option<Tracer>,
    checksum: Rc<Cell<u64>>,
    epoch: Rc<Cell<i64>>,
    began: Instant,
}

impl Run {
    fn begin(worker: &mut Worker, arguments: Arguments) -> Result<Self, Error> {
        let tracer = arguments.trace.as_ref().map(|directory| {
            let mut config = Config::new(directory).sink(arguments.sink).replace(arguments.replace);
            if let Some((address, token_file)) = &arguments.send {
                config = config.send(address, token_file);
            }
            if let Some(authority) = &arguments.authority {
                config = config.authority(authority);
            }
            if let Some(patience) = arguments.patience {
                config = config.finish_within(patience);
            }
            if let Some(arrivals) = &arguments.arrivals {
                config = config.arrivals(arrivals);
            }
            pag_timely::attach(worker, config)
        });
        let tracer = tracer.transpose()?;
        Ok(Self { arguments, tracer, checksum: Rc::default(), epoch: Rc::default(), began: Instant::now() })
    }

    /// Ends the worker's epoch.
    pub fn tick(&self) {
        self.epoch.set(self.epoch.get() + 1);
        if let Some(tracer) = &self.tracer {
            tracer.tick();
        }
    }

    /// The worker's epoch.
    pub fn epoch(&self) -> Rc<Cell<i64>> {
        Rc::clone(&self.epoch)
    }

    /// Begins a named activity.
    pub fn application(&self, name: &str) -> Option<Activity> {
        self.tracer.as_ref().map(|tracer| tracer.application(name))
    }

    /// Begins named activities inside of operators.
    pub fn activities(&self) -> Option<Activities> {
        self.tracer.as_ref().map(Tracer::activities)
    }

    /// Says when the worker's input is due.
    pub fn inputs(&self, schedule: Schedule) -> Option<Inputs> {
        self.tracer.as_ref().map(|tracer| tracer.inputs(schedule))
    }

    /// Takes steps while `busy` says so; parks in between, unless told to spin.
    pub fn steps(&self, worker: &mut Worker, mut busy: impl FnMut() -> bool) {
        while busy() {
            self.step(worker, None);
        }
    }

    /// Takes a step; parks if there is nothing to do, until something comes or the time is over, unless told to spin.
    pub fn step(&self, worker: &mut Worker, at_most: Option<Duration>) {
        if let Some(tracer) = &self.tracer {
            tracer.before_step();
        }
        if self.arguments.step {
            worker.step();
        } else {
            worker.step_or_park(at_most);
        }
    }

    /// Collects results; they add up to the checksum, in any order.
    pub fn collector(&self) -> impl Fn(u64) + use<> {
        let checksum = Rc::clone(&self.checksum);
        move |value| checksum.set(checksum.get().wrapping_add(mix(value)))
    }

    fn end(self, worker: &Worker) -> Result<(), Error> {
        if worker.index() == 0 {
            let nanoseconds = self.began.elapsed().as_nanos();
            println!("checksum {:016x} elapsed_ns {nanoseconds}", self.checksum.get());
        }
        self.tracer.map_or(Ok(()), Tracer::finish)
    }
}

/// Mixes the bits of a number (the finaliser of SplitMix64).
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The `n`-th random number of a seed.
pub fn random(seed: u64, n: u64) -> u64 {
    mix(mix(seed) ^ n)
}

/// Work that takes about a nanosecond a round, and whose result nobody can guess.
pub fn work(mut x: u64, rounds: u64) -> u64 {
    for _ in 0..rounds {
        x = mix(x);
    }
    x
}
