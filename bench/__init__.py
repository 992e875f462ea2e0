"""Measurements of speed and of predictions: ``python -m bench``; see ``bench/README.md``."""
