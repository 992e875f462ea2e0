//! A worker joins a trace that workers of its own process and of another one began.

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pag_timely::Config;
use support::{Place, Trace, int, text};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::{Exchange, Input, Probe};

const PLACE: &str = "PAG_TIMELY_TEST_PLACE";
const PROCESS: &str = "PAG_TIMELY_TEST_PROCESS";

fn wait_for(file: &Path) {
    let began = Instant::now();
    while !file.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} did not come", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One of two processes of two workers each: workers 0 to 2 begin the trace, worker 3 joins it.
#[test]
#[ignore = "it is the child of another test"]
fn member() {
    let (Some(place), Ok(process)) = (std::env::var_os(PLACE), std::env::var(PROCESS)) else { return };
    let place = Path::new(&place).to_owned();
    let hosts = place.join("hosts").to_string_lossy().into_owned();
    let words = ["-w", "2", "-n", "2", "-p", &process, "-h", &hosts].map(str::to_owned);
    timely::execute_from_args(words.into_iter(), move |worker| {
        let config = Config::new(place.join("trace")).founders(3);
        let tracer = if worker.index() < 3 {
            let tracer = pag_timely::attach(worker, config).expect("it begins");
            if worker.index() == 2 {
                tracer.spawned(3);
                std::fs::write(place.join("spawned"), "").expect("it can be written");
            }
            tracer
        } else {
            let parts = ["spawned", "trace/parts/process-00000.json", "trace/parts/process-00001.json"];
            parts.iter().for_each(|file| wait_for(&place.join(file)));
            pag_timely::join(worker, config, 0).expect("it joins")
        };
        let mut input = InputHandle::new();
        let probe =
            worker.dataflow(|scope| scope.input_from(&mut input).container::<Vec<u64>>().exchange(|x| *x).probe().0);
        for epoch in 0_u64..3 {
            (0..100).for_each(|x| input.send(x));
            input.advance_to(epoch + 1);
            while probe.less_than(input.time()) {
                worker.step_or_park(None);
            }
            tracer.tick();
        }
        drop(input);
        while worker.has_dataflows() {
            worker.step_or_park(None);
        }
        tracer.finish().expect("it is written");
    })
    .expect("workers start");
}

#[test]
fn a_worker_joins_from_its_own_process() {
    let place = Place::new("joining");
    // The ports are free again when the listeners are dropped.
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let hosts: Vec<_> = ports.iter().map(|port| port.local_addr().expect("it is bound").to_string()).collect();
    std::fs::write(place.0.join("hosts"), hosts.join("\n")).expect("it can be written");
    drop(ports);
    let children = ["0", "1"].map(|process| {
        Command::new(std::env::current_exe().expect("this program has a place"))
            .args(["--exact", "member", "--ignored"])
            .envs([(PLACE, place.0.as_os_str()), (PROCESS, process.as_ref())])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts")
    });
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let trace = Trace::read(&place.0.join("trace"));
    trace.check_order();
    trace.check_messages();
    assert_eq!(
        (&trace.meta["complete"], &trace.meta["workers"], &trace.meta["processes"]),
        (&true.into(), &4.into(), &2.into())
    );
    assert_eq!(trace.workers.iter().map(|row| int(row, "process")).collect::<Vec<_>>(), [0, 0, 1, 1].map(Some));
    let spawn = trace.events.iter().find(|event| text(event, "kind") == "spawn").expect("it was started");
    assert_eq!((int(spawn, "worker"), int(spawn, "peer")), (Some(2), Some(3)));
}
