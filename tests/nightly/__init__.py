"""Endurance, run by name: `pytest -m nightly tests/nightly`; see each module for its own way."""
