"""Data sets that are computed: noise, and solids that are made up."""
