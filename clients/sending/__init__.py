"""Files -> requests -> a running service, each batch once."""
