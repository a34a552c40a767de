"""Detectors: rules that say after each batch whether something has changed."""
