"""Seconds until an answer: a new process, and a second fit in it, by the tools that one might pick."""
