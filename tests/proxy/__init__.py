"""A real mitmdump between a scripted upstream and exact clients, all on loopback.

upstream      says what a test tells it to, byte for byte, and keeps what it was asked
client        HTTP/1.1 on a raw socket and HTTP/2: what came, in which pieces, and how it ended
mitmdump      the process in between: with the tee, or bare as the control
certificates  for TLS on both sides
wires         the wire formats as upstreams speak them, with the figures they hold
pair          ours and a bare one before one upstream, for the tests beside the matrix
rows          what the ledger says
scripts/      small addons that a test puts beside ours
"""
