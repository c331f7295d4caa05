"""Streams: what a deployed classifier meets. A spec, from it a plan, from it batches."""
