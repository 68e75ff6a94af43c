"""Programs that are run outside: in processes of their own, on this machine or a cluster, every run kept.

Importing it does not import jax, so that no worker does.
"""

from dlrd.simulation.command import Command
from dlrd.simulation.log import Log
from dlrd.simulation.misfit import Misfit
from dlrd.simulation.run import Answer, Question, Simulation, Status
from dlrd.simulation.server import Server
from dlrd.simulation.session import Session

__all__ = [
    "Answer",
    "Command",
    "Log",
    "Misfit",
    "Question",
    "Server",
    "Session",
    "Simulation",
    "Status",
]
