"""Data: what a stream is made of."""
