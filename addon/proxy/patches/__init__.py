"""What mitmproxy has no hook for, one file each: why, which versions, what happens without it."""
