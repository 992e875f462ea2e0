"""What advice is made of: work of threads, ports at operators, their search and replays, trials (`docs/advice.md`)."""
