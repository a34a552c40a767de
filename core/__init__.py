"""The method: an engine that learns from a stream, and the values it works with."""
