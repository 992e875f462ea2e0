//! A trace that is sent: it comes whole and once, whatever the follower does, and the program never waits.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pag_timely::{Config, Error, Overflow};
use support::follower::{Follower, token_file};
use support::{Place, Trace, int};
use timely::dataflow::InputHandle;
use timely::dataflow::operators::{Exchange, Input, Probe};

const WORKERS: usize = 2;

/// Runs a program of some rounds; `between` is called after each by worker 0.
fn run(config: Config, rounds: u64, between: impl Fn(u64) + Send + Sync + 'static) -> Result<(), Error> {
    let guards = timely::execute(timely::Config::process(WORKERS), move |worker| -> Result<(), Error> {
        let tracer = pag_timely::attach(worker, config.clone())?;
        let mut input = InputHandle::new();
        let probe =
            worker.dataflow(|scope| scope.input_from(&mut input).container::<Vec<u64>>().exchange(|x| *x).probe().0);
        for round in 0..rounds {
            (0..100).for_each(|x| input.send(x));
            input.advance_to(round + 1);
            while probe.less_than(input.time()) {
                worker.step_or_park(None);
            }
            tracer.tick();
            if worker.index() == 0 {
                between(round);
            }
        }
        tracer.finish()
    });
    guards.expect("workers start").join().into_iter().try_for_each(|worker| worker.expect("no worker panics"))
}

fn config(place: &Path, follower: &Follower) -> Config {
    let token = token_file(place);
    Config::new(place.join("trace")).flush_every(Duration::from_millis(2)).send(follower.address.as_str(), token)
}

/// A certificate for 127.0.0.1, and what a follower shows with it.
#[cfg(feature = "tls")]
fn identity(place: &Path, name: &str) -> (std::path::PathBuf, std::sync::Arc<rustls::ServerConfig>) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("it can be made");
    let file = place.join(name);
    std::fs::write(&file, made.cert.pem()).expect("it can be written");
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("they belong together");
    (file, config.into())
}

/// What came, as a trace.
fn received(follower: &Follower) -> Trace {
    let mut received = follower.received.lock().expect("nobody panicked");
    let mut events = std::mem::take(&mut received.events);
    events.sort_by_key(|row| (int(row, "worker"), int(row, "seq")));
    let meta = received.meta.clone().expect("a description came");
    Trace { meta, operators: Vec::new(), channels: Vec::new(), workers: Vec::new(), events }
}

fn pause(round: u64) {
    if round.is_multiple_of(10) {
        std::thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn all_of_a_trace_comes_and_nothing_stays() {
    let place = Place::new("send");
    let follower = Follower::start();
    run(config(&place.0, &follower), 200, pause).expect("it is recorded");
    let trace = received(&follower);
    trace.check_order();
    assert_eq!(trace.count("epoch_end"), 200 * WORKERS);
    let received = follower.received.lock().expect("nobody panicked");
    assert!(received.finished && received.ended.len() == WORKERS && received.lost.is_empty());
    let hello = received.hello.as_ref().expect("it said who it is");
    assert_eq!((&hello["workers"], &hello["processes"]), (&serde_json::json!([0, 1]), &serde_json::json!(1)));
    assert_eq!(hello["trace_id"], trace.meta["trace_id"]);
    assert!(!place.0.join("trace").exists(), "what was taken is removed");
}

/// Sends by connections that are cut until most rounds are over: nothing is missing or there twice.
fn comes_whole_although_it_is_cut(config: Config, follower: &Follower) {
    follower.cut_after.store(3, Ordering::Relaxed);
    let cut_after = follower.cut_after.clone();
    let last = move |round| {
        pause(round);
        if round == 150 {
            cut_after.store(usize::MAX, Ordering::Relaxed);
        }
    };
    run(config, 200, last).expect("it is recorded");
    assert!(follower.connections.load(Ordering::Relaxed) > 1, "it was cut");
    let trace = received(follower);
    trace.check_order();
    assert_eq!(trace.count("epoch_end"), 200 * WORKERS);
}

#[test]
fn connections_that_are_cut_double_and_lose_nothing() {
    let place = Place::new("send-cut");
    let follower = Follower::start();
    comes_whole_although_it_is_cut(config(&place.0, &follower), &follower);
}

#[test]
fn nobody_waits_for_a_follower_that_stands_still() {
    let place = Place::new("send-stands");
    let follower = Follower::start();
    follower.stands.store(true, Ordering::Relaxed);
    let config = config(&place.0, &follower).finish_within(Duration::from_millis(50));
    run(config, 200, pause).expect("it is recorded");
    // All of it stays, and is a trace.
    let trace = Trace::read(&place.0.join("trace"));
    trace.check_order();
    assert_eq!(trace.count("epoch_end"), 200 * WORKERS);
    assert_eq!((&trace.meta["stalled_ns"], &trace.meta["complete"]), (&serde_json::json!(0), &serde_json::json!(true)));
    assert!(trace.meta.get("lost").is_none());
}

#[test]
fn nobody_waits_for_a_follower_that_does_not_greet() {
    let place = Place::new("send-silent");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = silent.local_addr().expect("it has an address").to_string();
    let config = Config::new(place.0.join("trace")).send(address, token_file(&place.0));
    let begun = std::time::Instant::now();
    run(config.finish_within(Duration::from_millis(50)), 50, pause).expect("it is recorded");
    // A greeting may take 30 s; who wants to end does not wait for it.
    assert!(begun.elapsed() < Duration::from_secs(25));
    assert_eq!(Trace::read(&place.0.join("trace")).count("epoch_end"), 50 * WORKERS);
}

#[test]
fn what_has_no_room_is_listed_and_ends_of_epochs_stay() {
    let place = Place::new("send-full");
    let follower = Follower::start();
    follower.stands.store(true, Ordering::Relaxed);
    let stands = follower.stands.clone();
    let config = config(&place.0, &follower).spill(100_000).overflow(Overflow::Spill);
    let rounds = 600;
    let goes_on = move |round| {
        pause(round);
        if round == 500 {
            stands.store(false, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    run(config, rounds, goes_on).expect("it is recorded");
    let trace = received(&follower);
    assert_eq!(trace.count("epoch_end"), rounds as usize * WORKERS);
    assert_eq!(trace.meta["stalled_ns"], 0);
    let received = follower.received.lock().expect("nobody panicked");
    assert!(received.finished && !received.lost.is_empty());
    // What is missing is what is listed, and nothing else.
    for worker in 0..WORKERS as i64 {
        let lost = received.lost.iter().filter(|lost| lost.0 == worker);
        let listed: BTreeSet<i64> = lost.flat_map(|&(_, first, last)| first..=last).collect();
        let there: BTreeSet<i64> = trace.of(worker).map(|row| int(row, "seq").expect("a number")).collect();
        assert!(listed.is_disjoint(&there), "of worker {worker}");
        assert!(listed.union(&there).copied().eq(1..=received.ended[&worker]), "of worker {worker}");
    }
}

#[test]
fn places_and_tokens_of_others_are_refused() {
    let place = Place::new("send-refused");
    let token = token_file(&place.0);
    let trace = || Config::new(place.0.join("trace"));
    for config in [
        trace().send("192.0.2.1:7070", &token),
        trace().send("nowhere", &token),
        trace().send("127.0.0.1:7070", place.0.join("no token")),
    ] {
        assert!(matches!(run(config, 1, |_| ()), Err(Error::Send(_))));
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    assert!(matches!(run(trace().send("127.0.0.1:7070", &token), 1, |_| ()), Err(Error::Send(_))));
    assert!(!place.0.join("trace").exists());
}

#[cfg(feature = "tls")]
#[test]
fn what_is_encrypted_comes_whole_also_when_it_is_cut() {
    let place = Place::new("send-tls");
    let (authority, encryption) = identity(&place.0, "authority.pem");
    let follower = Follower::encrypted(encryption);
    comes_whole_although_it_is_cut(config(&place.0, &follower).authority(authority), &follower);
    assert!(!place.0.join("trace").exists(), "what was taken is removed");
}

#[cfg(feature = "tls")]
#[test]
fn followers_that_nobody_vouches_for_get_nothing() {
    let place = Place::new("send-tls-others");
    let (_, encryption) = identity(&place.0, "theirs.pem");
    let (authority, _) = identity(&place.0, "ours.pem");
    // One with a certificate of others, and one without any.
    for (name, follower) in [("other", Follower::encrypted(encryption)), ("none", Follower::start())] {
        let folder = place.0.join(name);
        std::fs::create_dir(&folder).expect("it can be made");
        let config = config(&folder, &follower).authority(&authority).finish_within(Duration::from_millis(200));
        run(config, 50, pause).expect("it is recorded");
        assert!(follower.connections.load(Ordering::Relaxed) > 0, "{name}: it came");
        assert!(follower.received.lock().is_ok_and(|received| received.hello.is_none()), "{name}: it said nothing");
        let trace = Trace::read(&folder.join("trace"));
        assert_eq!(trace.count("epoch_end"), 50 * WORKERS, "{name}: all of it stays");
    }
}

#[cfg(feature = "tls")]
#[test]
fn certificates_that_are_none_are_refused() {
    let place = Place::new("send-tls-none");
    let token = token_file(&place.0);
    std::fs::write(place.0.join("empty.pem"), "nothing").expect("it can be written");
    let trace = || Config::new(place.0.join("trace")).send("127.0.0.1:7070", &token);
    for config in [trace().authority(place.0.join("absent.pem")), trace().authority(place.0.join("empty.pem"))] {
        assert!(matches!(run(config, 1, pause), Err(Error::Send(_) | Error::Elsewhere(_))));
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn without_encryption_an_authority_is_refused() {
    let place = Place::new("send-no-tls");
    let config = Config::new(place.0.join("trace")).send("127.0.0.1:7070", token_file(&place.0)).authority("ca.pem");
    assert!(matches!(run(config, 1, pause), Err(Error::Send(_) | Error::Elsewhere(_))));
}
