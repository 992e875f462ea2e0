"""Traces that come by TCP: the frames, who sends them, and who listens."""
