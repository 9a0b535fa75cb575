"""Edge (mitmproxy). The option of this part: `tee_fast`."""

from collections.abc import Mapping
from typing import Any

from addon.proxy.options import PartOption, one_of

FAST = PartOption(
    help="Make mitmproxy's own work cheaper, which replaces methods of it: auto (default: "
    "in tokentee run, and in a mitmdump whose only script is this one), yes, no.",
    read=lambda text: one_of("tee_fast", text, {"auto": None, "yes": True, "no": False}),
)


def is_wanted(options: Mapping[str, Any], is_ours: bool) -> bool:
    """Whether methods of mitmproxy are replaced, which a guest does only when it is told to."""
    fast: bool | None = options.get("tee_fast")
    return is_ours if fast is None else fast
