"""What advice is made of: work of threads, ports at operators, their search and replay, and trials (`docs/advice.md`)."""
