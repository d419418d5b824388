"""Server-side JavaScript: stored procedures, triggers and functions, run in a process that can reach nothing."""
