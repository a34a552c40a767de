"""The single writer: entries in order -> engine -> snapshots, events, checkpoints."""
