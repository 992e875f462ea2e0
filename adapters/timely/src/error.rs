use std::fmt;
use std::path::PathBuf;

/// Why a trace could not be begun or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The worker was made without a clock, so Timely does not log.
    NoLogging,
    /// Somebody else listens to this log stream already; a stream has one listener.
    Taken(String),
    /// There is something at the trace's place, and it may not be replaced.
    Exists(PathBuf),
    /// Not every worker attached in time; every worker must.
    Absent {
        /// Workers that were heard of.
        present: usize,
        /// Workers that there are.
        peers: usize,
    },
    /// Another worker could not begin the trace.
    Elsewhere(String),
    /// The trace cannot be sent: the address is not of this machine, or the token cannot be used.
    Send(String),
    /// The file system refused, or a file could not be encoded; what was recorded since is lost, and the trace says so.
    Write(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLogging => {
                write!(f, "the worker has no clock and therefore no logs; make it with `timely::execute`")
            }
            Self::Taken(name) => {
                write!(f, "the log stream {name:?} has a listener already; attach the tracer first, or remove it")
            }
            Self::Exists(path) => {
                write!(f, "{} exists already; choose another place, or allow `Config::replace`", path.display())
            }
            Self::Absent { present, peers } => {
                write!(f, "only {present} of {peers} workers attached in time; every worker must call `attach`")
            }
            Self::Elsewhere(message) => write!(f, "the trace could not be begun on another worker: {message}"),
            Self::Send(message) => write!(f, "the trace cannot be sent: {message}"),
            Self::Write(message) => write!(f, "the trace could not be written: {message}"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Turns a refusal of the file system into an error that names the file.
    pub(crate) fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |error| Self::Write(format!("{}: {error}", path.display()))
    }
}
