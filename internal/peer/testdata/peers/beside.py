"""A module that peers.py imports from its folder."""
ONE = 1
