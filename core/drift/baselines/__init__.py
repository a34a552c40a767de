"""Rules to compare with: the paper's, River's, and none."""
