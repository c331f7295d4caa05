"""What to do with what was rejected: keep it, look at it, export it, make a class of it.

store     rejected samples on disk, bounded; when it is full, the most common looks go first
clusters  groups of them in feature space
export    folders by cluster, CSV, FiftyOne and Label Studio files, and a page to look at
"""
