// purpose: Add a run with the trace, rules, parameters and release that it was made of, or bring what is known of it up
//   to date.
// param run: id of the run
// param trace_id: id of the trace that it was built from
// param rules: rule set that it was built with
// param parameters: parameters of the rule set, as JSON
// param parameter_names: names of the parameters
// param parameter_values: their values, each as JSON
// param parameters_id: hash of the parameters
// param product_version: release that built it
// param origin_unix_ns: Unix time at which its times are 0
// param end_ns: its end
// param workers: number of its workers
// param last_closed_epoch: last epoch that every worker has left
// param events: rows of its trace
// param source_system: system that ran
// param source_version: version of that system
// param source_format: format of the trace
// param store: absolute path of the store that it is loaded from
// param epoch_ranges: numbers of the epochs of the store: first and last of each stretch without a gap
// param round_ranges: those of them that are neither startup nor shutdown, likewise
// param name: what people call it; null leaves what is there
// param usual_name: what it is called where nobody has ever given it a name
// param tags: words to find it by; null leaves what is there
// param program: what ran; null leaves what is there
// param trace_path: where the trace lay, or null
// param file_names: files of the trace whose sums are known
// param file_bytes: sizes of these files
// param file_crc32: their checksums
// param hosts: where it ran, as far as the log says

MERGE (run:Run {id: $run})
SET run.trace_id = $trace_id,
    run.rules = $rules,
    run.parameters = $parameters,
    run.product_version = $product_version,
    run.origin_unix_ns = $origin_unix_ns,
    run.end_ns = $end_ns,
    run.workers = $workers,
    run.last_closed_epoch = $last_closed_epoch,
    run.events = $events,
    run.source_system = $source_system,
    run.source_version = $source_version,
    run.source_format = $source_format,
    run.store = $store,
    run.epoch_ranges = $epoch_ranges,
    run.round_ranges = $round_ranges,
    run.name = coalesce($name, run.name, $usual_name),
    run.tags = coalesce($tags, run.tags, []),
    run.program = coalesce($program, run.program),
    run.hosts = $hosts,
    run.started = CASE WHEN $origin_unix_ns >= 0 THEN
      datetime({epochSeconds: $origin_unix_ns / 1000000000, nanosecond: $origin_unix_ns % 1000000000})
    END
MERGE (trace:Trace {id: $trace_id})
SET trace.system = $source_system,
    trace.version = $source_version,
    trace.format = $source_format,
    trace.path = coalesce($trace_path, trace.path)
FOREACH (known IN CASE WHEN size($file_names) > 0 THEN [trace] ELSE [] END |
  SET known.file_names = $file_names, known.file_bytes = $file_bytes, known.file_crc32 = $file_crc32)
MERGE (run)-[:WAS_DERIVED_FROM]->(trace)
MERGE (:RuleSet {name: $rules})
MERGE (given:Parameters {id: $parameters_id})
SET given.json = $parameters,
    given.names = $parameter_names,
    given.values = $parameter_values;
