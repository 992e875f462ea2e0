// purpose: What identifies each kind of node, and what queries find events by. Can be run again at any time.

CREATE CONSTRAINT run_key IF NOT EXISTS FOR (run:Run) REQUIRE run.id IS UNIQUE;
CREATE CONSTRAINT epoch_key IF NOT EXISTS FOR (epoch:Epoch) REQUIRE (epoch.run, epoch.epoch) IS UNIQUE;
CREATE CONSTRAINT worker_key IF NOT EXISTS FOR (worker:Worker) REQUIRE (worker.run, worker.worker) IS UNIQUE;
CREATE CONSTRAINT operator_key IF NOT EXISTS FOR (operator:Operator) REQUIRE (operator.run, operator.operator) IS UNIQUE;
CREATE CONSTRAINT event_key IF NOT EXISTS FOR (event:Event) REQUIRE (event.run, event.id) IS UNIQUE;

// The state of a worker at an instant, and the events of a window.
CREATE INDEX event_time IF NOT EXISTS FOR (event:Event) ON (event.run, event.worker, event.t_ns);
// The events of a round of input. On its own: an index that has `epoch` second is not used for it.
CREATE INDEX event_epoch IF NOT EXISTS FOR (event:Event) ON (event.epoch);
