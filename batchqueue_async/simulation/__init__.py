"""What a queue would do under a load: the real engine, in virtual time.

* `simulate`: one setting under one load.
* `plan`: the cheapest of many settings that holds a service level.
"""

from batchqueue_async.simulation._plan import Level, Plan, Trial, plan
from batchqueue_async.simulation._result import Simulation
from batchqueue_async.simulation._simulate import simulate

__all__ = ["Level", "Plan", "Simulation", "Trial", "plan", "simulate"]
