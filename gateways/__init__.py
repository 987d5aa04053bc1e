"""The outside world, one module per kind of party. A gateway decides nothing and remembers nothing that matters."""
