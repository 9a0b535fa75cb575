"""Edge. mitmproxy without the addons that a recording proxy does not use.

`mitmproxy.addons` imports all of its 40 modules as soon as one is asked for: LDAP, Flask, HAR, an
onboarding site. `install` puts an empty package in that place, whose modules are imported when they
are named. It has to be called before anything of mitmproxy is imported; otherwise it changes
nothing.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = "mitmproxy.addons"


class _Package(ModuleType):
    """The package, whose own contents (`default_addons`) come when they are asked for."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if importlib.util.find_spec(f"{PACKAGE}.{name}") is not None:
            return importlib.import_module(f"{PACKAGE}.{name}")
        spec = importlib.util.spec_from_file_location(
            PACKAGE, Path(self.__path__[0]) / "__init__.py"
        )
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(self)
        return self.__dict__[name]


def install() -> None:
    """Put the empty package in place, unless the real one is there."""
    if PACKAGE in sys.modules:
        return
    spec = importlib.util.find_spec("mitmproxy")
    assert spec is not None
    assert spec.origin is not None
    package = _Package(PACKAGE)
    package.__path__ = [str(Path(spec.origin).parent / "addons")]
    package.__package__ = PACKAGE
    sys.modules[PACKAGE] = package
