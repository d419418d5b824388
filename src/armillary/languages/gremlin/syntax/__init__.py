"""Scripts and bytecode to instructions: lexer, grammar, tokens and the tree that both become."""
