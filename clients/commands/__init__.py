"""The `gmr` command and its sub-commands."""
