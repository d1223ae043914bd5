"""What a timeout may be, everywhere in the package."""

import math

import pytest

from batchqueue_async._validation import require_timeout


@pytest.mark.parametrize("value", [None, 0, 0.0, 1, 0.5, 1e9])
def test_a_timeout_is_none_or_a_number_of_seconds(value: object) -> None:
    require_timeout("timeout", value)


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, -math.inf, 10**400])
def test_no_other_number_is_a_timeout(value: object) -> None:
    with pytest.raises(ValueError, match=r"^timeout must be a number of seconds >= 0"):
        require_timeout("timeout", value)


@pytest.mark.parametrize("value", ["30", b"1", True, [], 1j, object()])
def test_nothing_else_is_a_timeout(value: object) -> None:
    with pytest.raises(TypeError, match=r"^patience must be .*, got "):
        require_timeout("patience", value)
