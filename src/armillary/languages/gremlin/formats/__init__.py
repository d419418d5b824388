"""The wire formats of values: GraphSON and GraphBinary, read and written, with limits on the size of a message."""
