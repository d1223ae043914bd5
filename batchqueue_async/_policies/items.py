"""The type of a queue's items: for type checkers, and as a handler's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, is_typeddict

from batchqueue_async._validation import refuse, require_instance

if TYPE_CHECKING:
    # The default spares `BatchQueue("name")` an annotation; at run time only 3.13
    # has it.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


def require_item_type(value: object) -> None:
    """Refuse what is no class, or one that no item can have."""
    require_instance("item_type", value, type, "a class")
    if value is Any:
        refuse("item_type", "a class; object is that of all items", value, TypeError)
    if is_typeddict(value):
        rule = "a class that items have; those of a TypedDict are of dict"
        refuse("item_type", rule, value, TypeError)
