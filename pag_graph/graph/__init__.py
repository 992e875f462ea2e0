"""Reading: runs, windows and their snapshots, and windows by the million."""
