"""HTTP, settings, metrics and the page: the only package that knows of the network."""

__version__ = "0.1.0"
