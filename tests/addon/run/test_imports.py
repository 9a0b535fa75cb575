import gc

import pytest

from addon.run.imports import uncollected_imports


def test_what_is_made_meanwhile_is_never_walked() -> None:
    with uncollected_imports():
        assert not gc.isenabled()
        made: list[object] = [[]]
    assert gc.isenabled()
    assert not any(seen is made for seen in gc.get_objects())


def test_collector_works_again_after_an_import_that_failed() -> None:
    with pytest.raises(ImportError), uncollected_imports():
        raise ImportError
    assert gc.isenabled()
