"""A machine that no packet reaches any more, as seen from a server."""

import ctypes
import os
import socket
import sys
from typing import Any

import pytest

# Of Linux, which Python's `socket` has no name for.
_ATTACH_FILTER = 26
# Of the filter's language: to let through so many bytes.
_RETURN = 0x06


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("bytes", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_uint16),
        ("instructions", ctypes.POINTER(_Instruction)),
    )


def unreachable(connection: Any) -> socket.socket:  # noqa: ANN401 - of asyncpg
    """Drop what comes for the connection, before it is acknowledged.

    The server is not told of an end of the connection either, for as long as what is
    returned is open.
    """
    if sys.platform != "linux":
        pytest.skip("needs Linux: its sockets drop packets")
    transport = connection._transport
    kept = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    nothing = (_Instruction * 1)(_Instruction(_RETURN, 0, 0, 0))
    kept.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, bytes(_Program(1, nothing)))
    return kept
