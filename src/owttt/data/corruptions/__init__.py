"""The corruptions: of images, of clouds, and the randomness every sample has of its own."""
