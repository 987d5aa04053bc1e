"""A mail server and SMS providers on loopback: they speak the real wire formats, reach nobody, and fail as told."""
