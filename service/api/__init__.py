"""The HTTP API: reads requests, appends to the stream, answers from the latest snapshot."""
