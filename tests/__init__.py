"""The tests mirror the source; `proxy` runs a real mitmdump, `bench` measures."""
