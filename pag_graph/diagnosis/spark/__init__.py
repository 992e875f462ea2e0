"""Why a Spark application was slow, and what would help, from its event log."""
