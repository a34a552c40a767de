"""Files and named data sets -> rows of features and labels."""
