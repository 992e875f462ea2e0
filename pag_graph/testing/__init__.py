"""Strategies and brute-force oracles for tests of programs that build on this package."""
