"""Postgres: one function, one guarded change. Each takes the transaction as its first argument."""
