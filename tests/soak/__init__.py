"""Endurance, run by name: `pytest -m soak tests/soak`; see each module for its own way."""
