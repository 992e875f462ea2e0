// purpose: Up to which commit of its store a run has been exported.
// param run: id of the run
// returns: one row where it has: version (of the table `epochs`), commit

// A load may have been one of some epochs.
MATCH (export:Export {run: $run, command: 'export'})
RETURN export.to_version AS version, export.to_commit AS commit
ORDER BY version DESC
LIMIT 1;
