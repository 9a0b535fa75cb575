"""Reading recorded exchanges from files, one module for each kind of file.

In: paths. Out: values of `recorded` (`Recorded`, `Skipped`, `Unreadable`), no mitmproxy flows.

recorded        the values, and their validation: header names, times, URLs
identity        the id of an exchange that was recorded without one
line_files      lines of plain and gzipped files, bounded; damaged parts are skipped
lines           one exchange a line: captures of every version, and test corpora
flow_files      mitmproxy's flow files
har             HAR exports of browsers and mitmproxy
bodies          the body of one answer

Uses: metering and what it uses.
"""
