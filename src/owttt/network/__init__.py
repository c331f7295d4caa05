"""Any classifier from the inside: its penultimate features, and its normalization layers at test time."""
