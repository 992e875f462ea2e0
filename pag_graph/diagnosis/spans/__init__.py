"""What spans say: paths of requests under several policies, sums by operation, and differences of two sets."""
