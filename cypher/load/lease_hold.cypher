// purpose: Check, in a transaction that writes, that the right to write the run is still held; it lasts longer then.
// param run: id of the run
// param lane: number of the lane that the transaction goes over; no other one is under way there
// param holder: who holds it
// param attempt: which attempt at the task writes
// param lease_ms: for how long from now on
// returns: one row if it is held: lane

MATCH (lease:Lease {run: $run, lane: $lane})
// Locked before it is read: who takes the lease waits for this transaction.
SET lease.touched = true
WITH lease
WHERE lease.holder = $holder AND lease.attempt = $attempt
SET lease.expires_ms = timestamp() + $lease_ms
RETURN lease.lane AS lane;
