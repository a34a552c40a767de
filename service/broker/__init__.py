"""Redis: names, connections, the lease, and both ends of the stream."""
