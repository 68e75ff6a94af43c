"""Models as people write them, in the libraries they use: fits beside the same library's NUTS."""
