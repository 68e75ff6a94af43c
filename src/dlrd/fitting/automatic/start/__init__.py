"""Finding a start: modes by L-BFGS, families there, short runs from them."""
