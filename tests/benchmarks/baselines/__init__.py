"""What people do without Pinhole, to measure against."""
