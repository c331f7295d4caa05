"""Runs: a method on a stream, recorded in full."""
