"""Reading recorded exchanges from files, one module for each kind of file.

In: paths. Out: values of `recorded` (`Recorded`, `Skipped`, `Unreadable`), no mitmproxy flows.
A damaged entry is one `Unreadable` with its place; the entries beside it are read.

recorded        the values, their validation, and the id of an exchange recorded without one
lines           one exchange a line: captures of every version, and test corpora
saved_flows     flow files and HAR, by mitmproxy's own reader
Uses: framing, metering; of the ledger: model.
"""
