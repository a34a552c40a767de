"""Trainers over many machines: Ray decides who runs, the fence in Redis who writes."""
