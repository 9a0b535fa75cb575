"""Edge. mitmproxy without the addons that a recording proxy does not use.

`mitmproxy.addons` imports all of its 40 modules as soon as one is asked for: LDAP, Flask, HAR, an
onboarding site. `install` replaces it by an empty package whose modules are imported on access. It
must be called before anything of mitmproxy is imported; otherwise it changes nothing.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = "mitmproxy.addons"


class _Package(ModuleType):
    """The package; its own names (`default_addons`) are imported on access."""

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
    """Install the empty package, unless the real one is already imported."""
    if PACKAGE in sys.modules:
        return
    spec = importlib.util.find_spec("mitmproxy")
    assert spec is not None
    assert spec.origin is not None
    package = _Package(PACKAGE)
    package.__path__ = [str(Path(spec.origin).parent / "addons")]
    package.__package__ = PACKAGE
    sys.modules[PACKAGE] = package
