"""Transports compared: what runs beside Holdfast to see how it fares on each."""
