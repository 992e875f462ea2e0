// purpose: Record what an export, or another load, has done.
// param id: id of the export
// param run: id of the run
// param command: export or load
// param store: absolute path of its store
// param detail: how much of each epoch was loaded
// param from_version: version of the table `epochs` up to which it was exported before; null for never, and for a load
// param to_version: version that is in the database now
// param to_commit: id of its commit
// param product_version: release that exported
// param epochs: numbers of the epochs that it loaded
// param events: events of them
// param relationships: activities and messages of them
// param segments: segments of them
// param seconds: how long it took

MATCH (run:Run {id: $run})
CREATE (export:Export {
  id: $id,
  run: $run,
  command: $command,
  store: $store,
  detail: $detail,
  from_version: $from_version,
  to_version: $to_version,
  to_commit: $to_commit,
  product_version: $product_version,
  epochs: $epochs,
  events: $events,
  relationships: $relationships,
  segments: $segments,
  seconds: $seconds,
  ended: datetime()
})
CREATE (export)-[:EXPORTED]->(run);
