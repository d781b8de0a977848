"""One file per op; see :mod:`kernels.op` for what a file holds and the README for the recipe."""
