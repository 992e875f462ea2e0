//! The log streams of one worker, and how their events become one sequence.
//!
//! Timely logs through one buffer per stream, and hands a buffer over when it is full and when its logger is flushed.
//! `Worker::step_or_park` flushes every registered logger once at its end, empty ones too, in an arbitrary order; the
//! stream `timely` alone is flushed once more before a park and after a dataflow was built. So a step has ended when
//! every stream but `timely` was flushed; then this module flushes `timely` itself. At that moment all streams are
//! complete, and what they hold is merged.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use timely::container::CapacityContainerBuilder;
use timely::logging::{TimelyEventBuilder, TimelyProgressEventBuilder};
use timely::logging_core::{Logger, Registry};
use timely::progress::Timestamp;

use crate::Error;
use crate::record::{Kind, Record};
use crate::recorder::{Recorder, nanoseconds};

/// Events of a step that wait to be merged; in a longer step they are merged in between.
const PENDING: usize = 16 * 1024;

const STEPS: &str = "pag-timely/steps";

type StepBuilder = CapacityContainerBuilder<Vec<(Duration, ())>>;

/// Loggers that the tracer flushes itself.
///
/// Owned by the logger of [`STEPS`], which only the registry owns. Listeners refer to it weakly: a logger owns its
/// listener, so a strong reference would keep both alive for ever.
pub(crate) struct Handles {
    timely: Logger<TimelyEventBuilder>,
    progress: Vec<ProgressStream>,
}

/// A progress stream that is listened to.
struct ProgressStream {
    name: String,
    flush: Box<dyn Fn()>,
    /// Whether the program asked for it; else it is one of the usual ones.
    asked: bool,
    /// Whether anything was logged to it.
    used: Rc<Cell<bool>>,
}

/// What listeners and the tracer share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) recorder: Rc<RefCell<Recorder>>,
    handles: Weak<RefCell<Option<Handles>>>,
}

impl Shared {
    /// Flushes all streams and merges what they held.
    pub(crate) fn synchronise(&self) {
        self.flush(true);
        self.recorder.borrow_mut().merge();
    }

    /// Flushes the progress streams, and `timely` if asked; the listeners know that no step ends here.
    fn flush(&self, timely: bool) {
        let Some(handles) = self.handles.upgrade() else { return };
        let handles = handles.borrow();
        let Some(handles) = handles.as_ref() else { return };
        let before = std::mem::replace(&mut self.recorder.borrow_mut().inside, true);
        if timely {
            handles.timely.flush();
        }
        for stream in &handles.progress {
            (stream.flush)();
        }
        self.recorder.borrow_mut().inside = before;
    }

    fn on_timely(&self, data: Option<&mut Vec<(Duration, timely::logging::TimelyEvent)>>) {
        let mut recorder = self.recorder.borrow_mut();
        match data {
            Some(events) => {
                for (time, event) in events.drain(..) {
                    recorder.timely(nanoseconds(time), event);
                }
                if recorder.pending() < PENDING || recorder.inside {
                    return;
                }
                drop(recorder);
                self.flush(false);
                self.recorder.borrow_mut().merge();
            }
            // Progress is only sent and read inside of steps, so at a park the other streams are empty.
            None if !recorder.inside && recorder.parks() => recorder.merge(),
            None => {}
        }
    }

    /// One of the streams that count was flushed.
    fn on_flush(&self, time: Duration, steps: bool) {
        let mut recorder = self.recorder.borrow_mut();
        if recorder.inside || !recorder.round.flushed(steps) {
            return;
        }
        recorder.inside = true;
        drop(recorder);
        if let Some(handles) = self.handles.upgrade()
            && let Some(handles) = handles.borrow().as_ref()
        {
            handles.timely.flush();
        }
        let mut recorder = self.recorder.borrow_mut();
        recorder.inside = false;
        recorder.step_ended(nanoseconds(time));
    }
}

/// Counts flushes, to tell when all streams have had theirs.
#[derive(Debug, Default)]
pub(crate) struct Round {
    expected: usize,
    calls: usize,
    steps: bool,
}

impl Round {
    /// A stream more takes part.
    fn join(&mut self) {
        self.expected += 1;
    }

    /// A stream less takes part.
    fn leave(&mut self) {
        self.expected -= 1;
    }

    /// Counts a flush; returns whether it is the round's last.
    fn flushed(&mut self, steps: bool) -> bool {
        if steps && self.steps {
            // A whole round passed without the number that was expected: somebody removed a stream of ours.
            self.expected = self.calls.max(1);
            self.calls = 0;
        }
        self.steps |= steps;
        self.calls += 1;
        if self.calls < self.expected {
            return false;
        }
        self.calls = 0;
        self.steps = false;
        true
    }
}

/// Registers a stream; and whether the program asked for it.
pub(crate) type Registration = (fn(&mut Registrar<'_>), bool);

/// Registers listeners.
pub(crate) struct Registrar<'a> {
    registry: &'a mut Registry,
    shared: &'a Shared,
    progress: Vec<ProgressStream>,
    /// Whether the program asked for the streams that are registered now.
    pub(crate) asked: bool,
    taken: Option<String>,
}

impl Registrar<'_> {
    /// Listens to the progress of scopes whose timestamp is `T`.
    pub(crate) fn progress<T: Timestamp>(&mut self) {
        let name = format!("timely/progress/{}", std::any::type_name::<T>());
        if self.registry.names().any(|known| known == name) {
            // Ours, if it was asked for twice; a stream of the same name but another type cannot be.
            if self.registry.get::<TimelyProgressEventBuilder<T>>(&name).is_none()
                || !self.shared.recorder.borrow().knows(&name)
            {
                self.taken.get_or_insert(name);
            }
            return;
        }
        let shared = self.shared.clone();
        let used = Rc::new(Cell::new(false));
        let mark = Rc::clone(&used);
        self.registry.insert::<TimelyProgressEventBuilder<T>, _>(&name, move |time, data| match data {
            Some(events) => {
                mark.set(true);
                let mut recorder = shared.recorder.borrow_mut();
                for (time, event) in events.drain(..) {
                    recorder.progress_seen(event.channel);
                    let kind = if event.is_send { Kind::ProgressSend } else { Kind::ProgressReceive };
                    recorder.aside(Record {
                        t: nanoseconds(time),
                        message: event.seq_no as u64,
                        count: (event.messages.len() + event.internal.len()) as i64,
                        id: event.channel as u32,
                        scope: event.identifier as u32,
                        peer: event.source as u32,
                        kind,
                    });
                }
            }
            None => shared.on_flush(*time, false),
        });
        let logger = self.registry.get::<TimelyProgressEventBuilder<T>>(&name).expect("it was inserted just now");
        let flush = Box::new(move || logger.flush());
        self.progress.push(ProgressStream { name: name.clone(), flush, asked: self.asked, used });
        let mut recorder = self.shared.recorder.borrow_mut();
        recorder.round.join();
        recorder.know(name);
    }
}

/// Ends the recording when the worker's registry goes away.
struct Finaliser {
    shared: Shared,
    handles: Rc<RefCell<Option<Handles>>>,
}

impl Drop for Finaliser {
    fn drop(&mut self) {
        self.shared.synchronise();
        // Loggers flush when they are dropped; nobody may listen any more, and nothing may be borrowed.
        self.shared.recorder.borrow_mut().inside = true;
        let handles = self.handles.borrow_mut().take();
        self.shared.recorder.borrow_mut().close();
        drop(handles);
    }
}

/// Registers all streams of a worker.
pub(crate) fn register(registry: &mut Registry, recorder: Recorder, streams: &[Registration]) -> Result<Shared, Error> {
    for name in ["timely", STEPS] {
        if registry.names().any(|known| known == name) {
            return Err(Error::Taken(name.to_owned()));
        }
    }
    let handles = Rc::new(RefCell::new(None));
    let shared = Shared { recorder: Rc::new(RefCell::new(recorder)), handles: Rc::downgrade(&handles) };
    let mut registrar = Registrar { registry, shared: &shared, progress: Vec::new(), asked: false, taken: None };
    for (stream, asked) in streams {
        registrar.asked = *asked;
        stream(&mut registrar);
    }
    let Registrar { registry, progress, taken, .. } = registrar;
    if let Some(name) = taken {
        return Err(Error::Taken(name));
    }
    let listener = shared.clone();
    registry.insert::<TimelyEventBuilder, _>("timely", move |_, data| listener.on_timely(data.as_mut()));
    let timely = registry.get::<TimelyEventBuilder>("timely").expect("it was inserted just now");
    *handles.borrow_mut() = Some(Handles { timely, progress });
    let finaliser = Finaliser { shared: shared.clone(), handles };
    shared.recorder.borrow_mut().round.join();
    registry.insert::<StepBuilder, _>(STEPS, move |time, _| {
        finaliser.shared.on_flush(*time, true);
    });
    Ok(shared)
}

/// Listens to one more progress stream.
pub(crate) fn register_more<T: Timestamp>(registry: &mut Registry, shared: &Shared) -> Result<(), Error> {
    let mut registrar = Registrar { registry, shared, progress: Vec::new(), asked: true, taken: None };
    registrar.progress::<T>();
    let Registrar { progress, taken, .. } = registrar;
    if let Some(name) = taken {
        return Err(Error::Taken(name));
    }
    if let Some(handles) = shared.handles.upgrade()
        && let Some(handles) = handles.borrow_mut().as_mut()
    {
        handles.progress.extend(progress);
    }
    Ok(())
}

/// Lets go of the usual progress streams that no scope uses: each costs a reading of the clock in every step.
///
/// Nobody tells which stream a scope logs to. But if as many progress channels were heard of as were made, then every
/// scope's stream is known, and a silent stream has no scope.
pub(crate) fn release_unused(registry: &mut Registry, shared: &Shared) {
    if !shared.recorder.borrow().all_progress_seen() {
        return;
    }
    let Some(handles) = shared.handles.upgrade() else { return };
    let mut unused = Vec::new();
    if let Some(handles) = handles.borrow_mut().as_mut() {
        let (keep, release) = handles.progress.drain(..).partition(|stream| stream.asked || stream.used.get());
        handles.progress = keep;
        unused = release;
    }
    // A logger flushes when it is dropped; that is no end of a step.
    let before = std::mem::replace(&mut shared.recorder.borrow_mut().inside, true);
    for stream in unused {
        let logger = registry.remove(&stream.name);
        shared.recorder.borrow_mut().forget(&stream.name);
        shared.recorder.borrow_mut().round.leave();
        drop(stream);
        drop(logger);
    }
    shared.recorder.borrow_mut().inside = before;
}

/// The time since a worker's clock zero.
pub(crate) fn since(timer: Instant) -> u64 {
    nanoseconds(timer.elapsed())
}

#[cfg(test)]
mod tests {
    use super::Round;

    #[test]
    fn a_round_ends_with_its_last_stream() {
        let mut round = Round { expected: 3, ..Round::default() };
        for _ in 0..3 {
            assert!(!round.flushed(false));
            assert!(!round.flushed(true));
            assert!(round.flushed(false));
        }
    }

    #[test]
    fn a_round_adapts_when_a_stream_is_gone() {
        let mut round = Round { expected: 3, ..Round::default() };
        // Only two streams are left: the one of steps and another.
        let ended: Vec<bool> = (0..6).flat_map(|_| [round.flushed(true), round.flushed(false)]).collect();
        assert!(ended[4..].chunks(2).all(|pair| pair == [false, true] || pair == [true, false]), "{ended:?}");
    }
}
