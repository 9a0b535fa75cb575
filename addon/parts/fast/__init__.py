"""Fast: methods of mitmproxy that are replaced where the process is ours, one file for each
mechanism. Without them everything works, slower.

Each file says why it is there, what it gained (measured), which functions of mitmproxy it relies
on (`RELIES_ON`), and what happens without it. `mechanisms` puts all of them in by one call, and
takes them out by one. `tee_fast=no` leaves all of them out.

In: a master of mitmproxy. Out: the same with replaced methods, and a function that puts them back.
Uses: proxy.
"""
