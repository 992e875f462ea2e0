// purpose: Give up the right to write a run.
// param run: id of the run
// param holder: who holds it

MATCH (lease:Lease {run: $run, holder: $holder})
DELETE lease;
