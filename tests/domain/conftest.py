"""How Hypothesis runs: by what it finds, not by how busy the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")
