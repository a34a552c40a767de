"""One file per format that rows are read from."""
