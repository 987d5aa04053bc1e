"""The candidates, each a module of its own that nothing imports but for its sake."""
