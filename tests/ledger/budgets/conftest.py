"""The filled ledger of the pages."""

from tests.ledger.parts.pages.conftest import weeks, weeks_file, weeks_url  # noqa: F401
