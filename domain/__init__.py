"""Pure rules: no clock, no SQL, no Celery, no network. Time is always an argument."""
