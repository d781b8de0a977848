"""Frames, slots and the threads that move them. Knows nothing of HTTP."""
