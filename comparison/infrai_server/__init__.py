"""A local server that keeps the Infrai contract as public material shows it, for development, tests and comparison.

It is not Infrai: where nothing is published it does what `contract.py` says, and each such choice is a switch there.
"""
