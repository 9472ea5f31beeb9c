"""What happened: written by the engine while it runs, read by users."""

from gristmill.observe._counters import Counters, StepClock
from gristmill.observe._stats import Stats, StepStats
from gristmill.observe._tally import Tally
from gristmill.observe._trace import named, traced

__all__ = ["Counters", "Stats", "StepClock", "StepStats", "Tally", "named", "traced"]
