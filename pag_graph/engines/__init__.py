"""Where a build runs: in this process, or in Spark tasks."""
