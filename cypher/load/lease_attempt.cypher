// purpose: Let an attempt at a task use a lane; an earlier attempt can write no more.
// param run: id of the run
// param lane: number of the lane
// param holder: who holds the right to write the run
// param attempt: name of the attempt
// returns: one row if it is held: lane

MATCH (lease:Lease {run: $run, lane: $lane})
SET lease.touched = true
WITH lease
WHERE lease.holder = $holder
SET lease.attempt = $attempt
RETURN lease.lane AS lane;
