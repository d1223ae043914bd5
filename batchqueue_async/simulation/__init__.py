"""What a queue would do under a load: the real engine, in virtual time.

* `simulate`: one setting under one load.
* `plan`: the cheapest of many settings that holds a service level.
* `measure`: what calls of a real handler take, to be given to either.
"""

from batchqueue_async.simulation._cost import Cost, Sample, measure
from batchqueue_async.simulation._plan import Level, Plan, Trial, plan
from batchqueue_async.simulation._simulate import Simulation, simulate

__all__ = [
    "Cost",
    "Level",
    "Plan",
    "Sample",
    "Simulation",
    "Trial",
    "measure",
    "plan",
    "simulate",
]
