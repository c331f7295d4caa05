"""Data sets from their official files, one file a format."""
