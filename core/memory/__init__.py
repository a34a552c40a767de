"""Bounded values that the engine keeps beside the model. Nobody acts here."""
