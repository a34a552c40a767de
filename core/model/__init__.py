"""A density joined to a read-out: the model at rest, what it names and what it draws."""
