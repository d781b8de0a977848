"""Images, operations and the devices that run them. Knows nothing of cameras, threads or HTTP."""
