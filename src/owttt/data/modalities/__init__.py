"""What samples are: images or point clouds. Each owns how it is corrupted, framed, varied and drawn."""
