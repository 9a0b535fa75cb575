"""Measurements, run by name.

__main__     all that docs/benchmarks.md states, as one command: python -m tests.bench
upstream     a fast upstream with precomputed answers, in a process of its own
load         a fast client, in a process of its own
bench_proxy  what recording costs: stock mitmdump that only streams, and ours, in turn
bench_start  CPU seconds of commands that start and end
bench_core   microseconds and calls of one exchange in this process
bench_tap    microseconds per frame of the tap and the meter alone
bench_caps   microseconds that a request pays for its caps
bench_estimate, bench_writer, bench_ledger  the parts behind it
"""
