"""A logical plan of Spark in Python: one call gets the whole tree as JSON.

Spark writes a tree as a flat list of nodes, each before its children, with the number of its children. A field that
holds trees (expressions of a projection, the plan of a subquery) holds such lists again. What Spark cannot write (maps,
functions) is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

PLANS = "org.apache.spark.sql.catalyst.plans.logical."
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
_PIECE = 6000
"""How many characters of a text the JVM sends in one write."""
_handles: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Node:
    """A plan or an expression: its class, its fields as Spark writes them, its children."""

    kind: str
    fields: dict[str, Any]
    children: list[Node] = field(default_factory=list)

    def trees(self) -> Iterator[Node]:
        """The trees in its fields: expressions of a plan, plans of an expression."""
        waiting = list(self.fields.values())
        while waiting:
            value = waiting.pop()
            if is_tree(value):
                yield tree(value)
            elif isinstance(value, list):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()


def plan_tree(jvm: Any, plan: Any) -> Node:
    """The tree of a logical plan of the JVM."""
    arguments = jvm.java.util.ArrayList()
    arguments.add(plan)
    text = _json_in_jvm(jvm).invokeWithArguments(arguments)
    length = text.length()
    pieces = [text.substring(at, min(at + _PIECE, length)) for at in range(0, length, _PIECE)]
    return tree(json.loads("".join(pieces)))


def _json_in_jvm(jvm: Any) -> Any:
    """`toJSON` as a function that leaves its text in the JVM. A text longer than the gateway's buffer would be sent in
    two writes, and the second waits 40 ms for the acknowledgement of the first; pieces are sent at once."""
    if jvm not in _handles:
        handles, types = jvm.java.lang.invoke.MethodHandles, jvm.java.lang.invoke.MethodType
        text, builder = (jvm.java.lang.Class.forName(f"java.lang.{name}") for name in ("String", "StringBuilder"))
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        node = loader.loadClass("org.apache.spark.sql.catalyst.trees.TreeNode")
        to_json = handles.publicLookup().findVirtual(node, "toJSON", types.methodType(text))
        build = handles.publicLookup().findConstructor(builder, types.methodType(jvm.java.lang.Void.TYPE, text))
        _handles[jvm] = handles.filterReturnValue(to_json, build)
    return _handles[jvm]


def is_tree(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "class" in value[0]


def tree(flat: list[dict[str, Any]]) -> Node:
    """The tree of a flat list. Not recursive: a plan may be deep."""
    built: list[Node] = []
    for fields in reversed(flat):
        count = fields["num-children"]
        children = built[len(built) - count :][::-1]
        del built[len(built) - count :]
        built.append(Node(fields["class"], fields, children))
    (root,) = built
    return root
