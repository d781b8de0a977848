"""Cameras of the Linux kernel: its structures, one open device, formats, controls, and buffers in a driver's queue."""
