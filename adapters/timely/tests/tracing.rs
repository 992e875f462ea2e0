//! What a program can do with a tracer, and what it finds in the trace.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use pag_timely::{ActivityType, Config, Error, Schedule, Sink, Step};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use support::{Place, Trace, int, text};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::{ConnectLoop, Enter, Exchange, Feedback, Input, Inspect, Leave, Probe};
use timely::order::Product;
use timely::worker::Worker;

/// Exchanges a few records in each of some epochs.
fn exchange(worker: &mut Worker, epochs: u64, mut tick: impl FnMut()) {
    let mut input = InputHandle::new();
    let probe = worker.dataflow(|scope| {
        scope.input_from(&mut input).container::<Vec<u64>>().exchange(|x| *x).inspect(|_| ()).probe().0
    });
    for epoch in 0..epochs {
        (0..10).for_each(|x| input.send(x));
        input.advance_to(epoch + 1);
        while probe.less_than(input.time()) {
            worker.step_or_park(None);
        }
        tick();
    }
}

fn record(path: &Path, workers: usize, epochs: u64, finish: bool) {
    let path = path.to_owned();
    let guards = timely::execute(timely::Config::process(workers), move |worker| {
        let tracer = pag_timely::attach(worker, Config::new(&path).replace(true)).expect("it begins");
        exchange(worker, epochs, || {
            tracer.tick();
        });
        if finish {
            tracer.finish().expect("it is written");
        }
    });
    guards.expect("workers start").join().into_iter().for_each(|result| result.expect("no worker panics"));
}

#[test]
fn a_run_is_complete_only_if_it_was_finished() {
    let place = Place::new("finish");
    let path = place.0.join("trace");
    record(&path, 2, 3, true);
    let trace = Trace::read(&path);
    trace.check();
    assert_eq!(
        trace.meta["source"],
        serde_json::json!({"system": "timely", "version": "0.31", "format": "pag-timely"})
    );
    let first = trace.meta["trace_id"].clone();
    record(&path, 2, 3, false);
    let trace = Trace::read(&path);
    assert_eq!(trace.meta["complete"], false);
    assert_ne!(trace.meta["trace_id"], first, "every run has an id of its own");
    trace.check_order();
    trace.check_messages();
    let leftovers: Vec<_> = std::fs::read_dir(path.join("events"))
        .expect("it is a folder")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|file| file.extension().is_none_or(|extension| extension != "parquet"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn epochs_are_numbered_by_ticks() {
    let place = Place::new("epochs");
    record(&place.0, 1, 4, true);
    let trace = Trace::read(&place.0);
    trace.check();
    let ends: Vec<_> =
        trace.events.iter().filter(|e| text(e, "kind") == "epoch_end").map(|e| int(e, "epoch")).collect();
    assert_eq!(ends, [0, 1, 2, 3].map(Some));
    assert_eq!(
        trace.events.last().and_then(|event| int(event, "epoch")),
        Some(4),
        "the shutdown follows the last tick"
    );
}

#[test]
fn activities_nest_and_have_ids_of_their_own() {
    let place = Place::new("activities");
    let path = place.0.clone();
    timely::execute(timely::Config::process(2), move |worker| {
        let tracer = pag_timely::attach(worker, Config::new(&path)).expect("it begins");
        {
            let _outer = tracer.application("outer");
            let _inner = tracer.application_as("inner", ActivityType::Io);
        }
        let activities = tracer.activities();
        worker.dataflow::<u64, _, _>(|scope| {
            use timely::dataflow::operators::ToStream;
            (0..3_u64).to_stream(scope).container::<Vec<_>>().inspect(move |_| drop(activities.begin("record")));
        });
        while worker.step() {}
        tracer.finish().expect("it is written");
    })
    .expect("workers start");
    let trace = Trace::read(&place.0);
    trace.check();
    let name = |id: Option<i64>| {
        let row = trace.operators.iter().find(|row| int(row, "operator") == id).expect("it is in the table");
        text(row, "name")
    };
    for worker in [0, 1] {
        let marks: Vec<_> = trace
            .of(worker)
            .filter(|event| text(event, "kind").starts_with("application"))
            .map(|event| (text(event, "kind"), name(int(event, "operator"))))
            .collect();
        assert_eq!(
            marks[..4],
            [
                ("application_start", "outer"),
                ("application_start", "inner"),
                ("application_stop", "inner"),
                ("application_stop", "outer")
            ]
        );
        assert_eq!(marks.iter().filter(|mark| **mark == ("application_start", "record")).count(), 3);
        let typed: Vec<_> = trace.of(worker).filter(|event| event["activity"] != Field::Null).collect();
        assert_eq!(typed.len(), 1, "only an activity that states its type has one, where it starts");
        assert_eq!(
            (text(typed[0], "kind"), text(typed[0], "activity"), name(int(typed[0], "operator"))),
            ("application_start", "io", "inner")
        );
    }
}

#[test]
fn a_worker_joins_and_leaves() {
    let place = Place::new("join");
    let path = place.0.join("trace");
    let directory = path.clone();
    let meet = Arc::new(Barrier::new(2));
    let guards = timely::execute(timely::Config::process(3), move |worker| {
        let config = Config::new(&directory).founders(2);
        let tracer = if worker.index() < 2 {
            let tracer = pag_timely::attach(worker, config).expect("it begins");
            assert_eq!((tracer.tick(), tracer.tick()), (0, 1));
            if worker.index() == 0 {
                let _request = tracer.step(Step::Request);
                tracer.spawned(2);
                tracer.sent(2, 7, 112);
                meet.wait();
                let _blocked = tracer.blocked();
                meet.wait();
            }
            tracer
        } else {
            meet.wait();
            let tracer = pag_timely::join(worker, config.clone(), 2).expect("it joins");
            {
                let _state = tracer.step(Step::ClientState);
                tracer.received(0, 7, 112);
                tracer.measure(7, 168);
            }
            meet.wait();
            tracer
        };
        exchange(worker, 3, || {
            tracer.tick();
        });
        if worker.index() == 2 { tracer.leave() } else { tracer.finish() }.expect("it is written");
    });
    guards.expect("workers start").join().into_iter().for_each(|result| result.expect("no worker panics"));
    let trace = Trace::read(&path);
    trace.check_order();
    trace.check_messages();
    assert_eq!((&trace.meta["complete"], &trace.meta["workers"]), (&true.into(), &3.into()));
    assert_eq!(trace.workers.iter().map(|row| int(row, "process")).collect::<Vec<_>>(), [0, 0, 0].map(Some));
    let kinds = |worker| trace.of(worker).map(|event| text(event, "kind")).collect::<Vec<_>>();
    assert_eq!(
        trace.of(2).next().and_then(|event| int(event, "epoch")),
        Some(2),
        "it counts from where the others are"
    );
    assert_eq!(kinds(2).last(), Some(&"exit"));
    assert_eq!((trace.count("exit"), trace.count("spawn")), (1, 1));
    let spawn = trace.of(0).find(|event| text(event, "kind") == "spawn").expect("it was counted");
    assert_eq!(int(spawn, "peer"), Some(2));
    let parked = kinds(0).iter().position(|kind| *kind == "park").expect("it was blocked");
    assert_eq!(kinds(0)[parked + 1], "unpark");
    let named: Vec<_> = trace.channels.iter().filter(|row| text(row, "scope") == "rescale").collect();
    assert_eq!(named.iter().map(|row| text(row, "type")).collect::<Vec<_>>(), ["rescale:bootstrap", "rescale:state"]);
    let sizes: Vec<_> =
        trace.events.iter().filter_map(|event| int(event, "bytes").zip(int(event, "records"))).collect();
    assert_eq!(sizes, [(112, 7), (112, 7), (168, 7), (168, 7)]);
}

#[test]
fn nobody_joins_a_trace_that_was_not_begun_for_it() {
    let place = Place::new("closed");
    record(&place.0.join("trace"), 1, 1, true);
    let path = place.0.join("trace");
    let refused = timely::execute(timely::Config::thread(), move |worker| {
        pag_timely::join(worker, Config::new(&path), 1).map(drop).map_err(|error| error.to_string())
    });
    let said = refused.expect("workers start").join().remove(0).expect("no worker panics").expect_err("it must not");
    assert!(said.contains("parts"), "{said}");
}

#[test]
fn steps_end_and_the_program_runs_between_them() {
    let place = Place::new("steps");
    record(&place.0, 2, 4, true);
    let trace = Trace::read(&place.0);
    trace.check();
    assert!(trace.count("step_stop") > 0 && trace.count("program") > 0);
    for worker in [0, 1] {
        let mut depth = 0;
        let mut before = "";
        for event in trace.of(worker) {
            let kind = text(event, "kind");
            depth += i64::from(kind == "start") - i64::from(kind == "stop");
            assert!(depth == 0 || !["program", "step_stop"].contains(&kind), "no step ends inside an operator");
            assert!(kind != "step_stop" || before != "step_stop", "between two ends of steps lies something");
            assert!(before != "park" || kind == "unpark", "a park is followed by its unpark");
            before = kind;
        }
    }
    let path = place.0.join("unmarked");
    let directory = path.clone();
    let guards = timely::execute(timely::Config::process(1), move |worker| {
        let tracer = pag_timely::attach(worker, Config::new(&directory).steps(false)).expect("it begins");
        exchange(worker, 2, || _ = tracer.tick());
        tracer.finish().expect("it is written");
    });
    guards.expect("workers start").join().into_iter().for_each(|result| result.expect("no worker panics"));
    let trace = Trace::read(&path);
    assert_eq!((trace.count("step_stop"), trace.count("program")), (0, 0));
}

#[test]
fn progress_that_nobody_listens_to_is_missing() {
    let place = Place::new("missing");
    for (name, listen) in [("deaf", false), ("listening", true)] {
        let path = place.0.join(name);
        let directory = path.clone();
        timely::execute(timely::Config::process(2), move |worker| {
            let tracer = pag_timely::attach(worker, Config::new(&directory)).expect("it begins");
            if listen {
                tracer.progress::<Product<u64, i16>>(worker).expect("nobody else listens");
            }
            let probe = worker.dataflow::<u64, _, _>(|scope| {
                use timely::dataflow::operators::ToStream;
                use timely::dataflow::operators::vec::{BranchWhen, Map};
                let numbers = (0..10_u64).to_stream(scope).container::<Vec<_>>();
                scope
                    .iterative::<i16, _, _>(|inner| {
                        let (handle, cycle) = inner.feedback(Product::new(0, 1));
                        let numbers = timely::dataflow::operators::Concat::concat(numbers.enter(inner), cycle);
                        let (done, again) = numbers.exchange(|x| *x).map(|x| x + 1).branch_when(|time| time.inner < 3);
                        done.connect_loop(handle);
                        again.leave(scope)
                    })
                    .probe()
                    .0
            });
            while !probe.done() {
                worker.step();
            }
            tracer.tick();
            tracer.finish().expect("it is written");
        })
        .expect("workers start");
        let trace = Trace::read(&path);
        trace.check_order();
        trace.check_messages();
        let missing = trace.meta["missing_progress"].as_array().expect("a list");
        if listen {
            assert!(missing.is_empty(), "{missing:?}");
        } else {
            assert_eq!(missing.len(), 1, "{missing:?}");
            assert_eq!(missing[0]["name"], "Iterative");
        }
    }
}

#[test]
fn what_is_there_is_not_replaced_unasked() {
    let place = Place::new("exists");
    let begin = |path: &Path, replace: bool| {
        let config = Config::new(path).replace(replace);
        timely::execute_directly(move |worker| pag_timely::attach(worker, config).map(drop))
    };
    std::fs::write(place.0.join("letter.txt"), "dear reader").expect("the file can be written");
    assert!(matches!(begin(&place.0, true), Err(Error::Exists(_))), "a folder that is no trace stays");
    let path = place.0.join("trace");
    begin(&path, false).expect("there is room");
    assert!(matches!(begin(&path, false), Err(Error::Exists(_))));
    begin(&path, true).expect("a trace may be replaced");
}

#[test]
fn a_second_run_is_an_error_on_every_worker_and_leaves_the_trace() {
    let place = Place::new("second");
    let path = place.0.join("trace");
    record(&path, 3, 2, true);
    let first = Trace::read(&path).meta["trace_id"].clone();
    let again = path.clone();
    let workers = timely::execute(timely::Config::process(3), move |worker| -> Result<(), Error> {
        let tracer = pag_timely::attach(worker, Config::new(&again))?;
        exchange(worker, 2, || {
            tracer.tick();
        });
        tracer.finish()
    })
    .expect("workers start");
    let results: Vec<_> = workers.join().into_iter().map(|result| result.expect("no worker panics")).collect();
    assert_eq!(results.iter().filter(|result| matches!(result, Err(Error::Exists(at)) if *at == path)).count(), 1);
    assert_eq!(results.iter().filter(|result| matches!(result, Err(Error::Elsewhere(_)))).count(), 2);
    let trace = Trace::read(&path);
    trace.check();
    assert_eq!(trace.meta["trace_id"], first);
}

#[test]
fn streams_have_one_listener() {
    let place = Place::new("taken");
    let path = place.0.join("trace");
    let result = timely::execute_directly(move |worker| {
        let _first = pag_timely::attach(worker, Config::new(&path).sink(Sink::Discard)).expect("it begins");
        pag_timely::attach(worker, Config::new(&path).sink(Sink::Discard)).map(drop)
    });
    assert!(matches!(result, Err(Error::Taken(name)) if name == "timely"));
}

#[test]
fn a_discarding_sink_leaves_nothing() {
    let place = Place::new("discard");
    let path = place.0.join("trace");
    let directory = path.clone();
    timely::execute(timely::Config::process(2), move |worker| {
        let config = Config::new(&path).sink(Sink::Discard);
        let tracer = pag_timely::attach(worker, config).expect("it begins");
        exchange(worker, 3, || {
            tracer.tick();
        });
        tracer.finish().expect("there is nothing to fail");
    })
    .expect("workers start");
    assert!(!directory.exists());
}

#[test]
fn long_steps_and_small_files_lose_nothing() {
    let place = Place::new("small");
    let path = place.0.clone();
    timely::execute(timely::Config::process(2), move |worker| {
        let config =
            Config::new(&path).rows_per_file(1_000).buffer(1).flush_every(Duration::from_millis(20)).only::<u64>();
        let tracer = pag_timely::attach(worker, config).expect("it begins");
        let mut input = InputHandle::new();
        let probe = worker.dataflow(|scope| {
            let mut stream = scope.input_from(&mut input).container::<Vec<u64>>();
            for _ in 0..20 {
                stream = stream.exchange(|x| x / 8);
            }
            stream.probe().0
        });
        for epoch in 0..200_u64 {
            (0..100).for_each(|x| input.send(x));
            input.advance_to(epoch + 1);
            while probe.less_than(input.time()) {
                worker.step();
            }
            tracer.tick();
        }
        tracer.finish().expect("it is written");
    })
    .expect("workers start");
    let trace = Trace::read(&place.0);
    trace.check();
    let files = std::fs::read_dir(place.0.join("events")).expect("it is a folder").count();
    assert!(files >= trace.events.len() / 1_000, "{files} files for {} events", trace.events.len());
}

#[test]
fn what_a_busy_worker_publishes_becomes_one_file() {
    let place = Place::new("joined");
    let path = place.0.join("trace");
    let directory = path.clone();
    let ends = Arc::new(AtomicBool::new(false));
    let (ended, looked) = (Arc::clone(&ends), path.clone());
    // Whoever looks meanwhile sees whole files, without gaps, and what he has seen stays as it is.
    let reader = std::thread::spawn(move || {
        let (mut seen, mut sizes) = (Vec::new(), 0);
        while !ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
            let Ok(file) = std::fs::File::open(looked.join("events/worker-0000001-0000000.parquet")) else { continue };
            let groups = SerializedFileReader::new(file).expect("it is whole").metadata().row_groups().to_vec();
            let rows: Vec<_> = groups.iter().map(|group| group.num_rows()).collect();
            assert!(rows.starts_with(&seen), "{rows:?} does not begin with {seen:?}");
            sizes += usize::from(rows.len() > seen.len());
            seen = rows;
        }
        sizes
    });
    timely::execute(timely::Config::process(2), move |worker| {
        let config = Config::new(&path).flush_every(Duration::from_millis(50));
        let tracer = pag_timely::attach(worker, config).expect("it begins");
        let inputs = tracer.inputs(Schedule::closed(40));
        let mut done = 0;
        exchange(worker, 40, || {
            inputs.given(done);
            done += 1;
            inputs.done(done);
            tracer.tick();
            std::thread::sleep(Duration::from_millis(20));
        });
        tracer.finish().expect("it is written");
    })
    .expect("workers start")
    .join()
    .into_iter()
    .for_each(|result| result.expect("no worker panics"));
    ends.store(true, Ordering::Relaxed);
    assert!(reader.join().expect("it read on") > 2, "the file grew while it was looked at");
    let trace = Trace::read(&directory);
    trace.check();
    assert_eq!(trace.count("epoch_end"), 80);
    for folder in ["events", "inputs"] {
        let names = std::fs::read_dir(directory.join(folder)).expect("it is a folder");
        let mut names: Vec<_> = names.map(|entry| entry.expect("it can be read").file_name()).collect();
        names.sort();
        assert_eq!(names, ["worker-0000000-0000000.parquet", "worker-0000001-0000000.parquet"], "{folder}");
    }
    let given = support::rows(&directory.join("inputs/worker-0000001-0000000.parquet"));
    let given = given.iter().filter_map(|row| int(row, "number")).collect::<Vec<_>>();
    assert_eq!(given, (0..40).collect::<Vec<_>>());
}

#[test]
fn an_idle_worker_costs_two_rows_a_flush() {
    let place = Place::new("idle");
    let path = place.0.clone();
    timely::execute_directly(move |worker| {
        let tracer = pag_timely::attach(worker, Config::new(&path)).expect("it begins");
        exchange(worker, 1, || ());
        let mut input = InputHandle::<u64, _>::new();
        worker.dataflow(|scope| scope.input_from(&mut input).container::<Vec<u64>>().probe().0);
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            worker.step();
        }
        tracer.tick();
        tracer.finish().expect("it is written");
    });
    let trace = Trace::read(&place.0);
    trace.check();
    let steps: i64 =
        trace.events.iter().filter(|e| text(e, "kind") == "idle_stop").filter_map(|e| int(e, "records")).sum();
    assert!(steps > 1_000, "{steps} empty steps");
    // Another program may take the core away and so cut the stretch.
    assert!(trace.count("idle_stop") < 200, "{} stretches", trace.count("idle_stop"));
}

#[test]
fn directories_of_several_processes_can_be_put_together() {
    let place = Place::new("assemble");
    record(&place.0.join("trace"), 1, 2, true);
    assert!(matches!(pag_timely::assemble(place.0.join("trace")), Err(Error::Write(_))), "there are no parts");
}

#[test]
fn unused_streams_are_let_go_and_named_ones_kept() {
    let place = Place::new("unused");
    // A dataflow whose timestamp nobody has used before, built after the first epoch.
    for (name, config) in [
        ("usual", Config::new(place.0.join("usual"))),
        ("named", Config::new(place.0.join("named")).progress::<u32>()),
        ("kept", Config::new(place.0.join("kept")).keep_unused(true)),
    ] {
        timely::execute(timely::Config::process(2), move |worker| {
            let tracer = pag_timely::attach(worker, config.clone()).expect("it begins");
            exchange(worker, 2, || {
                tracer.tick();
            });
            let mut input = InputHandle::<u32, _>::new();
            let probe = worker.dataflow(|scope| {
                scope.input_from(&mut input).container::<Vec<u64>>().exchange(|x| *x).inspect(|_| ()).probe().0
            });
            input.send(1);
            input.advance_to(1);
            while probe.less_than(input.time()) {
                worker.step();
            }
            tracer.tick();
            tracer.finish().expect("it is written");
        })
        .expect("workers start");
        let trace = Trace::read(&place.0.join(name));
        trace.check_order();
        trace.check_messages();
        let missing = trace.meta["missing_progress"].as_array().expect("a list");
        assert_eq!(missing.len(), usize::from(name == "usual"), "{name}: {missing:?}");
    }
}
