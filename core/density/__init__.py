"""Mixture densities: kernels, the protocol of a model family, and the families."""
