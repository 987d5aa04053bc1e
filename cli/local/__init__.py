"""The local stack: a real Postgres and a real Valkey from wheels, workers, beat and Flower, under supervisor."""
