// purpose: What identifies each kind of node, and what queries find events by. Can be run again at any time.

CREATE CONSTRAINT run_key IF NOT EXISTS FOR (run:Run) REQUIRE run.id IS UNIQUE;
CREATE CONSTRAINT epoch_key IF NOT EXISTS FOR (epoch:Epoch) REQUIRE (epoch.run, epoch.epoch) IS UNIQUE;
CREATE CONSTRAINT worker_key IF NOT EXISTS FOR (worker:Worker) REQUIRE (worker.run, worker.worker) IS UNIQUE;
CREATE CONSTRAINT operator_key IF NOT EXISTS FOR (operator:Operator) REQUIRE (operator.run, operator.operator) IS UNIQUE;
CREATE CONSTRAINT event_key IF NOT EXISTS FOR (event:Event) REQUIRE (event.run, event.id) IS UNIQUE;
CREATE CONSTRAINT segment_key IF NOT EXISTS FOR (segment:Segment) REQUIRE (segment.run, segment.id) IS UNIQUE;
CREATE CONSTRAINT snapshot_key IF NOT EXISTS FOR (snapshot:Snapshot) REQUIRE (snapshot.run, snapshot.id) IS UNIQUE;
CREATE CONSTRAINT step_key IF NOT EXISTS FOR (step:CriticalStep) REQUIRE (step.run, step.epoch, step.step) IS UNIQUE;
CREATE CONSTRAINT finding_key IF NOT EXISTS FOR (finding:Finding) REQUIRE (finding.run, finding.id) IS UNIQUE;
CREATE CONSTRAINT advice_key IF NOT EXISTS FOR (advice:Advice) REQUIRE (advice.run, advice.id) IS UNIQUE;
CREATE CONSTRAINT trial_key IF NOT EXISTS FOR (trial:Trial) REQUIRE (trial.run, trial.id) IS UNIQUE;
CREATE CONSTRAINT rescaling_key IF NOT EXISTS FOR (rescaling:Rescaling) REQUIRE (rescaling.run, rescaling.operation) IS UNIQUE;
CREATE CONSTRAINT phase_key IF NOT EXISTS FOR (phase:Phase) REQUIRE (phase.run, phase.operation, phase.phase) IS UNIQUE;
CREATE CONSTRAINT bootstrap_step_key IF NOT EXISTS FOR (step:BootstrapStep) REQUIRE (step.run, step.operation, step.number) IS UNIQUE;
CREATE CONSTRAINT job_key IF NOT EXISTS FOR (job:Job) REQUIRE job.id IS UNIQUE;
CREATE CONSTRAINT trace_key IF NOT EXISTS FOR (trace:Trace) REQUIRE trace.id IS UNIQUE;
CREATE CONSTRAINT rule_set_key IF NOT EXISTS FOR (rules:RuleSet) REQUIRE rules.name IS UNIQUE;
CREATE CONSTRAINT parameters_key IF NOT EXISTS FOR (parameters:Parameters) REQUIRE parameters.id IS UNIQUE;
CREATE CONSTRAINT version_key IF NOT EXISTS FOR (version:Version) REQUIRE (version.product, version.version) IS UNIQUE;
CREATE CONSTRAINT lease_key IF NOT EXISTS FOR (lease:Lease) REQUIRE (lease.run, lease.lane) IS UNIQUE;
CREATE CONSTRAINT export_key IF NOT EXISTS FOR (export:Export) REQUIRE export.id IS UNIQUE;

// The state of a worker at an instant, and the events of a window.
CREATE INDEX event_time IF NOT EXISTS FOR (event:Event) ON (event.run, event.worker, event.t_ns);
// The events of a round of input. On its own: an index that has `epoch` second is not used for it.
CREATE INDEX event_epoch IF NOT EXISTS FOR (event:Event) ON (event.epoch);
// The segments of a worker in a window, those that begin in one, and those of a round of input.
CREATE INDEX segment_time IF NOT EXISTS FOR (segment:Segment) ON (segment.run, segment.worker, segment.start_ns);
CREATE INDEX segment_round IF NOT EXISTS FOR (segment:Segment) ON (segment.run, segment.round);
CREATE INDEX segment_epoch IF NOT EXISTS FOR (segment:Segment) ON (segment.run, segment.epoch);
// What questions about whole runs begin with: of each epoch its data messages, and its stretches without work.
CREATE INDEX data_message_epoch IF NOT EXISTS FOR ()-[activity:DATA_MESSAGE]-() ON (activity.run, activity.epoch);
CREATE INDEX waiting_epoch IF NOT EXISTS FOR ()-[activity:WAITING]-() ON (activity.run, activity.epoch);
CREATE INDEX input_wait_epoch IF NOT EXISTS FOR ()-[activity:INPUT_WAIT]-() ON (activity.run, activity.epoch);
CREATE INDEX idle_epoch IF NOT EXISTS FOR ()-[activity:IDLE]-() ON (activity.run, activity.epoch);
// The operators of a channel.
CREATE INDEX feeds_channel IF NOT EXISTS FOR ()-[feeds:FEEDS]-() ON (feeds.run, feeds.channel);
// The epochs that an append may have changed.
CREATE INDEX epoch_highest IF NOT EXISTS FOR (epoch:Epoch) ON (epoch.run, epoch.highest_epoch);
// The epochs that may lose detail, and those of which something is still to be removed.
CREATE INDEX epoch_detail IF NOT EXISTS FOR (epoch:Epoch) ON (epoch.run, epoch.detail);
CREATE INDEX epoch_trims IF NOT EXISTS FOR (epoch:Epoch) ON (epoch.run, epoch.trims);
// What an epoch was seen as before.
CREATE INDEX snapshot_epoch IF NOT EXISTS FOR (snapshot:Snapshot) ON (snapshot.run, snapshot.epoch);
