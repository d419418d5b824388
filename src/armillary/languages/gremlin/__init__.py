"""The Gremlin language: scripts and bytecode are compiled to programs, which run on any graph that implements
`graph_protocol.Graph`.

Reading order: `syntax/instructions` (the tree that scripts and bytecode share), `syntax/lexer` and `syntax/grammar`,
`formats/`, `syntax/bytecode`; then `values/elements`, `graph_protocol` (the requests to storage), `traversers`,
`pipeline`, `steps/`, `traversal_builder`, `optimiser`, `run` and `program`. Nothing here opens a connection, stores an
item or reads a clock.
"""
