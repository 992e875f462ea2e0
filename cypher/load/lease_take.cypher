// purpose: Take the right to write a run, unless another loader holds it.
// param run: id of the run
// param lanes: numbers of the lanes: each transaction of a load goes over one of them
// param holder: who takes it
// param gone: holders that are known to have ended
// param lease_ms: for how long
// returns: one row: holder (who has it now), left_ms (for how long, by the server's clock)

UNWIND $lanes AS lane
MERGE (lease:Lease {run: $run, lane: lane})
// Locks the lanes: transactions that are under way end before.
SET lease.touched = true
WITH count(*) AS lanes
MATCH (lease:Lease {run: $run})
SET lease.touched = true
WITH collect(lease) AS leases
WITH leases,
     [lease IN leases
      WHERE lease.expires_ms > timestamp() AND NOT lease.holder IN $gone AND lease.holder <> $holder] AS taken
WITH leases, CASE WHEN size(taken) = 0 THEN null ELSE taken[0] END AS other
FOREACH (lease IN CASE WHEN other IS NULL THEN leases ELSE [] END |
  SET lease.holder = $holder, lease.attempt = '', lease.expires_ms = timestamp() + $lease_ms)
RETURN coalesce(other.holder, $holder) AS holder, coalesce(other.expires_ms - timestamp(), $lease_ms) AS left_ms;
