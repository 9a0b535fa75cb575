"""Writing: the queue, the writer thread, and the batches that it commits."""
