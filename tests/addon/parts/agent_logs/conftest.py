"""The fixtures of commands."""

from tests.addon.commands.conftest import engine, home  # noqa: F401
