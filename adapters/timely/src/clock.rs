//! A worker's clock starts at its own instant; this module ties the instants of a process to Unix time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// One instant, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anchor {
    instant: Instant,
    unix_ns: i64,
    /// How far off `unix_ns` may be.
    pub(crate) uncertainty_ns: i64,
}

impl Anchor {
    /// The anchor of this process: the same for all of its workers, so that they agree exactly.
    pub(crate) fn of_process() -> Self {
        static ANCHOR: Mutex<Option<Anchor>> = Mutex::new(None);
        let mut anchor = ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
        // A program that makes traces for hours should not rely on its first reading.
        match *anchor {
            Some(known) if known.instant.elapsed() < Duration::from_secs(60) => known,
            _ => *anchor.insert(Self::read()),
        }
    }

    /// Reads the wall clock between two instants, many times, and keeps the closest.
    fn read() -> Self {
        let mut best: Option<(Duration, Self)> = None;
        for _ in 0..256 {
            let before = Instant::now();
            let wall = SystemTime::now();
            let bracket = before.elapsed();
            if best.as_ref().is_some_and(|(least, _)| *least <= bracket) {
                continue;
            }
            let unix = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let anchor = Self {
                instant: before + bracket / 2,
                unix_ns: i64::try_from(unix.as_nanos()).unwrap_or(i64::MAX),
                uncertainty_ns: bracket.as_nanos().div_ceil(2) as i64 + 1,
            };
            best = Some((bracket, anchor));
        }
        best.expect("there was a first reading").1
    }

    /// Unix time of an instant.
    pub(crate) fn unix_ns(&self, instant: Instant) -> i64 {
        let later = instant.saturating_duration_since(self.instant).as_nanos() as i64;
        let earlier = self.instant.saturating_duration_since(instant).as_nanos() as i64;
        self.unix_ns + later - earlier
    }

    /// Unix time of now.
    pub(crate) fn now_ns(&self) -> i64 {
        self.unix_ns(Instant::now())
    }
}

/// The name of this machine.
pub(crate) fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok())?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// What processes have in common that read the same physical clock; `otherwise` where that cannot be known.
pub(crate) fn domain(otherwise: &str) -> String {
    // Containers of one machine have names of their own, but its boot and its clock.
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .map(|id| id.trim().to_owned())
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| otherwise.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_keep_their_distance() {
        let anchor = Anchor::of_process();
        let now = Instant::now();
        let later = now + Duration::from_nanos(12_345);
        assert_eq!(anchor.unix_ns(later) - anchor.unix_ns(now), 12_345);
        let earlier = now.checked_sub(Duration::from_millis(1)).expect("the machine runs longer than that");
        assert_eq!(anchor.unix_ns(now) - anchor.unix_ns(earlier), 1_000_000);
    }

    #[test]
    fn the_wall_clock_agrees() {
        let anchor = Anchor::of_process();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
        assert!((anchor.now_ns() - wall.as_nanos() as i64).abs() < 1_000_000_000);
    }
}
