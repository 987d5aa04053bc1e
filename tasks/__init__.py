"""Celery tasks: thin doorways. Each reads, asks the database for one guarded change, and writes."""
