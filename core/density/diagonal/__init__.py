"""The family of diagonal Gaussian components."""
