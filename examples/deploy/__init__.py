"""A job for clusters, and what brings it and the package there."""
