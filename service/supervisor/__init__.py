"""`gmr serve`: an embedded Redis, a trainer and an API with one lifetime."""
