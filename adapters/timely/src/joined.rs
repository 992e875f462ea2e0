//! Which portions of a worker's log become one file: a busy worker publishes two a second, and would leave thousands.
//!
//! The last file is replaced by one with the same row groups and those of the next portion. It is whole at any moment, so
//! a reader or a kill in between does no harm; names stay numbered without gaps; and a reader that comes again finds the
//! row groups that it knows at the same places, and the new ones behind them.

use std::time::{Duration, Instant};

/// For how long what is published of a worker goes into one file; a limit on its rows may end it earlier.
const LONGEST: Duration = Duration::from_secs(10);
/// How many portions a file may consist of: each copies those before it.
const MOST: usize = 64;
/// How many rows about input a file may have: each portion encodes those before it anew.
pub(crate) const INPUTS: usize = 64 * 1024;

/// The last file of a worker: what is published next goes into it as well, as long as it is young and small.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    begun: Instant,
    portions: usize,
    rows: usize,
    /// Whether it has the column for arrivals.
    arrivals: bool,
}

impl Joined {
    /// A file that is begun now.
    pub(crate) fn new(arrivals: bool) -> Self {
        Self { begun: Instant::now(), portions: 0, rows: 0, arrivals }
    }

    /// Whether it has the column for arrivals.
    pub(crate) fn arrivals(&self) -> bool {
        self.arrivals
    }

    /// Whether it may have more rows, of which there may be `most`.
    pub(crate) fn takes(&self, most: usize) -> bool {
        self.rows < most && self.portions < MOST && self.begun.elapsed() < LONGEST
    }

    /// How many rows it has.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Another portion was published; so many rows are in the file now.
    pub(crate) fn publish(&mut self, rows: usize) {
        self.portions += 1;
        self.rows = rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_ends_with_its_rows_its_portions_or_its_time() {
        let mut file = Joined::new(false);
        file.publish(99);
        assert!(file.takes(100));
        assert!(!file.takes(99));
        (1..MOST).for_each(|_| file.publish(99));
        assert!(!file.takes(100));
        let mut old = Joined::new(true);
        old.begun -= LONGEST;
        assert!(!old.takes(100));
    }
}
