"""What this process has of its machine: threads, memory, locks, folders of the user."""
