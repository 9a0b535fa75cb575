"""As the ledger's commands are called, and the filled ledger of the pages."""

from tests.ledger.commands import conftest
from tests.ledger.parts.pages.conftest import weeks, weeks_file, weeks_url  # noqa: F401

ledger = conftest.ledger
own_ledger = conftest.own_ledger
run = conftest.run
