"""A continual learning experiment through a live service, and its report."""
