"""What happened: written by the engine while it runs, read by users."""

from gristmill.observe._counters import Counters, StepClock
from gristmill.observe._stats import Stats, StepStats
from gristmill.observe._tally import Tally

__all__ = ["Counters", "Stats", "StepClock", "StepStats", "Tally"]
