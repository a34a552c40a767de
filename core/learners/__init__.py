"""Learners: how a model is fitted to the stream, by preset."""
