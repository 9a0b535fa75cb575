"""Edge. Answers the questions of the methods that `wrapped` puts around mitmproxy's streams.

mitmproxy has no hook at these moments. The answers come from the exchanges under way.
"""

from __future__ import annotations

from mitmproxy import ctx, http

from addon.proxy import answers, connections, opt_in
from addon.proxy.event_loop import guarded
from addon.proxy.recording import Recording
from addon.usage_opt_in import asking


class StreamEvents:
    """What happens in the streams of one recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def failed(self, flow: http.HTTPFlow, failure: Exception) -> None:
        """One of these raised: note it for the flow's row."""
        self._recording.troubles_of(flow).add_failure(failure, "the traffic goes on")

    @guarded
    def takes_runs(self, flow: http.HTTPFlow) -> bool:
        """Whether the callable on the flow's response is ours, so that it takes several chunks at
        once."""
        live = self._recording.live.get(flow.id)
        return (
            live is not None and flow.response is not None and (flow.response.stream is live.stream)
        )

    @guarded
    def broke(self, flow: http.HTTPFlow, *, by_client: bool) -> None:
        """Note which side broke the connection first."""
        live = self._recording.live.get(flow.id)
        if live is not None and live.broken_by_client is None:
            live.broken_by_client = by_client

    @guarded
    def asks_again(self, flow: http.HTTPFlow) -> bool:
        """Whether the request goes upstream again, without the usage that we asked for."""
        live = self._recording.live.get(flow.id)
        return (
            live is not None
            and live.original is not None
            and opt_in.revert_if_refused(live, self._recording.seen.proven)
        )

    @guarded
    def passes_on(self, flow: http.HTTPFlow, held_bytes: int) -> bool:
        """Whether an answer is too long to be held as a refusal of our question."""
        live = self._recording.live.get(flow.id)
        return (
            live is not None
            and live.original is not None
            and flow.response is not None
            and asking.may_refuse(flow.response.status_code)
            and held_bytes > asking.REFUSAL_BYTES_MAX
        )

    @guarded
    def stream_begins(self, flow: http.HTTPFlow) -> None:
        """Put the tap back where another addon replaced it by plain streaming."""
        live = self._recording.live.get(flow.id)
        if live is not None and flow.response is not None:
            answers.restore(live, flow.response)

    @guarded
    def upstream_ended(self, flow: http.HTTPFlow) -> None:
        """Note that a body which ends by closing was ended by a reset."""
        live = self._recording.live.get(flow.id)
        if live is None or flow.response is None or not answers.ends_by_closing(flow.response):
            return
        if connections.was_reset(ctx.master.addons, flow):
            live.broken_by_client = False

    @guarded
    def is_cut_short(self, flow: http.HTTPFlow) -> bool:
        """Whether the client's body must end in an error."""
        live = self._recording.live.get(flow.id)
        return live is not None and answers.is_cut_short(live)

    @guarded
    def held_length(self, flow: http.HTTPFlow) -> int:
        """The content-length of a body whose end waits for its commit; 0: it does not."""
        live = self._recording.live.get(flow.id)
        return answers.held_length(self._recording, live) if live is not None else 0
