"""Runs a module's tests in virtual time and on uvloop: `pytestmark = every_loop`.

The virtual loop is asyncio's own, so the promises are shown on both loops.
"""

import pytest

from tests.support.real_loops import real_loops

every_loop = pytest.mark.asyncio(
    loop_factories=["virtual", *sorted(real_loops().keys() & {"uvloop"})]
)
