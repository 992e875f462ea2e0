// purpose: Remember how far a store is followed, in the transaction that shows epochs.
// param run: id of the run
// param store: absolute path of its store
// param detail: how much of an epoch is loaded at present
// param to_version: version of the table `epochs` that was read
// param to_commit: id of its commit
// param product_version: release that follows
// param last_epoch: last epoch that is in the database then
// param lag_s: for how long epochs have waited to be loaded

MATCH (run:Run {id: $run})
MERGE (export:Export {id: 'follow/' + $run})
SET export.run = $run,
    export.command = 'follow',
    export.store = $store,
    export.detail = $detail,
    export.to_version = $to_version,
    export.to_commit = $to_commit,
    export.product_version = $product_version,
    export.last_epoch = $last_epoch,
    export.lag_s = $lag_s,
    export.ended = datetime()
MERGE (export)-[:EXPORTED]->(run);
