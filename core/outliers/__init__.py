"""p-values: how strange a sample is, on a scale on which inliers are even."""
