"""What several rooms need and none owns: files, progress bars, optional packages, help with names."""
