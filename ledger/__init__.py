"""The ledger: tables, money and time. It knows no wire format and no mitmproxy.

    model         exchange, reading, charge, usage, money, duplicates, providers
    pricing       price sources, price lines, overrides, charges
    store         tables, engines, migrations at first use, the writer, what is current
    sync          bundles, merging, the spool, the shipper
    maintenance   roll-ups, retention, corrections, repricing, audit
    reports       queries and their tables, text, export
    reconcile     vendors' statements and their comparison
    commands      one file per command

A room uses only rooms above it in this list; `tests/test_rooms.py` holds the table of arrows.
"""
