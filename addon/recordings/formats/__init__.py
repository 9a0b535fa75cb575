"""Reading recorded exchanges from files, one module for each kind of file.

In: paths. Out: values of `recorded` (`Recorded`, `Skipped`, `Unreadable`), no mitmproxy flows.

recorded        the values, and what is checked of each of them: header names, times, URLs
identity        the id of an exchange that was recorded without one
line_files      lines of plain and gzipped files, bounded, past damage
lines           one exchange a line: captures of every version, and test corpora
flow_files      what mitmproxy saves
har             what browsers and mitmproxy export
bodies          one answer's body

Uses: metering and what it uses.
"""
