"""The same posteriors fitted by other libraries and by simpler rules."""
