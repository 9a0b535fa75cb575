"""Host: mitmproxy's own objects as values, and settings of the process that it runs in.

    flows         flows -> the values that are metered
    bodies        whether another addon wants the bodies of answers
    connections   when mitmproxy connects to an upstream, and how the connection ended
    host_process  settings of the process
    turns         long work, in turns of the event loop

In: mitmproxy's flows, connections and addons. Out: values.
Uses: recordings.formats (the id of a flow), metering, patches.
"""
