"""Tests for service.archive and for what is made again from it."""
