"""The `tokentee` command with all its sub-commands, built once for all tests of a process."""

from addon.cli import application

APP = application()
