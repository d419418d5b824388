"""The Gremlin language: text and bytecode to traversals, and traversals over a graph that somebody else keeps.

Reading order: `instructions` (the tree that text and bytecode share), `lexer` and `grammar`, `graphson`,
`graphbinary`, `bytecode`; then `elements` and `values`, `graph` (what is asked of storage), `traversers`, `pipeline`,
`steps/`, `build`, `optimise`, `run` and `program`. Nothing here opens a connection, stores an item or reads a clock.
"""
