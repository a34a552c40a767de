"""The family of factor analysers: Gaussian components with a few shared directions."""
