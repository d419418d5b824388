"""Index definitions, and the part of a filter that an index can serve."""
