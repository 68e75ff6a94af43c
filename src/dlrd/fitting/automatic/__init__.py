"""The automatic mode of `fit`: it finds its start, takes its steps and looks where it stands, until sure."""
