"""Attacks on the library: each tries many hostile things and counts what it should have withstood and did not.

`make test` runs every attack in short (`test_attack.py`), `make attack` at length, with a table of counts.
"""
