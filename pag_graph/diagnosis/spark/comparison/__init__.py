"""Two logs of the same work: what belongs together, where the time differs to the nanosecond, and what was changed."""
