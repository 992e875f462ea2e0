"""Why training steps took as long as they did."""
