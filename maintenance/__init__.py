"""Programs for work on the project itself, called by the Makefile: generated documentation, and releases."""
