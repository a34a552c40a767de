"""Learners whose components belong to classes: learned in one pass, by windows."""
