"""Server-side JavaScript: stored procedures, triggers and user-defined functions, run in sandboxed processes."""
