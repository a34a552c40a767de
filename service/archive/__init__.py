"""What a model has read, kept in files so that it can be made again: see `gmr rebuild`."""
