"""What the command `dlrd` does, one command a file. Importing a command imports no numeric library."""
