"""Times of a result that come unchanged from an input, with their nanoseconds.

An input's plan ends in two projections (`ripples.py`): the lower one has each time and, beside it, its remainder below
a microsecond; the upper one hides the remainders. A column of the result is traced down the analysed plan, by the
permanent ids that Spark gives to columns, through every node that passes columns on: projections, aliases, filters,
joins, unions, sorts, limits, subqueries, `with`. If the trace ends at such a pair, the remainder is added to the
projections on its path. If it ends elsewhere (an expression, an aggregate, a function on rows) there is no remainder:
the time has whole microseconds, as Spark computed it. In a union, branches without a remainder get 0.

The trace is pure, over the plan as JSON. Only nodes on a trace are rebuilt in the JVM.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from headwater.base import limits
from headwater.spark.nanoseconds import REMAINDER, WITH_REMAINDERS
from headwater.spark.plan_json import EXPRESSIONS, PLANS, Node, plan_tree, tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HANDS_ON = frozenset(
    {
        "CollectMetrics",
        "Deduplicate",
        "Filter",
        "Generate",
        "GlobalLimit",
        "LateralJoin",
        "LocalLimit",
        "Offset",
        "PipeOperator",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Tail",
        "View",
        "Window",
    }
)
"""Nodes whose output begins with all columns of their first child."""
_ADDS_COLUMNS = frozenset({"Generate", "LateralJoin", "Window"})
_LEFT_ALONE = ("LeftSemi", "LeftAnti", "ExistenceJoin")


def exact_frame(frame: DataFrame) -> DataFrame:
    """The frame with a column of remainders at its end for each time that it passes on from an input; the frame itself
    if there is none. If Spark rejects the new plan (a form that is not known here), times stay in microseconds."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if frame.sparkSession not in WITH_REMAINDERS:
        return frame
    times = [index for index, field in enumerate(frame.schema.fields) if field.dataType.typeName() == "timestamp"]
    if not times or _is_cached(frame):
        return frame
    try:
        plan = frame._jdf.queryExecution().analyzed()
        trace = Trace(plan_tree(frame.sparkSession._jvm, plan))
        outputs = trace.outputs(trace.root)
        if outputs is None or len(outputs) != len(frame.columns):
            return frame
        carried = [index for index in times if trace.carries(trace.root, outputs[index])]
        if not carried:
            return frame
        return _Rewrite(frame, trace).frame(plan, {frame.columns[index]: outputs[index] for index in carried})
    except (PySparkException, Py4JError):
        return frame


def _is_cached(frame: DataFrame) -> bool:
    """Whether the result uses rows that the user's code has cached: with more columns they would be computed again."""
    session = frame.sparkSession._jsparkSession
    if session.sharedState().cacheManager().isEmpty():
        return False
    return "InMemoryRelation" in frame._jdf.queryExecution().withCachedData().treeString()


class Trace:
    """Where the columns of a plan come from. Columns are identified by Spark's ids."""

    def __init__(self, root: Node):
        self.root = root
        self.wanted_of_cte: defaultdict[int, set[int]] = defaultdict(set)
        """The positions of the columns that are read from each `with`."""
        self._ctes: dict[int, list[Node]] = defaultdict(list)
        self._known: dict[tuple[int, int], bool] = {}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.kind == PLANS + "CTERelationDef":
                self._ctes[node.fields["id"]].append(node)
            waiting += node.children

    def carries(self, node: Node, column: int, depth: int = 0) -> bool:
        """Whether a column of the node's output comes unchanged from an input, in at least one branch of a union."""
        key = (id(node), column)
        if key not in self._known:
            self._known[key] = depth < limits.PLAN_DEPTH and self._carries(node, column, depth + 1)
        return self._known[key]

    def _carries(self, node: Node, column: int, depth: int) -> bool:
        match short(node):
            case "Project":
                if remainder_index(node, column) is not None:
                    return True
                source = source_in(node, column)
                return source is not None and self.carries(node.children[0], source, depth)
            case "Join":
                return any(self.carries(side, column, depth) for side in sides(node))
            case "Union":
                # All branches, also after the first match: what they read from a `with` must be known.
                branches = self.branches(node, column)
                found = [self.carries(child, branch, depth) for child, branch in branches if branch is not None]
                return any(found)
            case "WithCTE":
                return self.carries(node.children[-1], column, depth)
            case "CTERelationRef":
                behind = self.behind(node, column)
                if behind is None or not self.carries(behind[0], behind[1], depth):
                    return False
                self.wanted_of_cte[node.fields["cteId"]].add(behind[2])
                return True
            case kind if kind in _HANDS_ON:
                return self.carries(node.children[0], column, depth)
        return False

    def branches(self, union: Node, column: int) -> list[tuple[Node, int | None]]:
        """The column of each child that becomes this column of a union; None if it is not known."""
        outputs = [self.outputs(child) for child in union.children]
        first = outputs[0]
        if first is None or column not in first:
            return [(child, None) for child in union.children]
        at = first.index(column)
        return [(child, ids[at] if ids else None) for child, ids in zip(union.children, outputs)]

    def behind(self, ref: Node, column: int) -> tuple[Node, int, int] | None:
        """The query of a `with`, its column that becomes this one of a reference, and that column's position. None if
        the plan has the same `with` twice: Spark identifies them only by their number."""
        named, definitions = self.outputs(ref), self._ctes[ref.fields["cteId"]]
        if len(definitions) != 1 or named is None or column not in named:
            return None
        query = definitions[0].children[0]
        outputs = self.outputs(query)
        at = named.index(column)
        return (query, outputs[at], at) if outputs is not None and at < len(outputs) else None

    def outputs(self, node: Node, depth: int = 0) -> list[int] | None:
        """The ids of a node's columns, in their order; None if they are not known."""
        kind = short(node)
        if depth > limits.PLAN_DEPTH:
            return None
        if kind in ("Project", "Aggregate"):
            return [column_id(item) for item in items(node)]
        if kind == "Join":
            parts = [self.outputs(side, depth + 1) for side in sides(node)]
            return None if None in parts else [column for part in parts if part is not None for column in part]
        if kind in ("Union", "Distinct", "Except", "Intersect") or kind in _HANDS_ON - _ADDS_COLUMNS:
            return self.outputs(node.children[0], depth + 1)
        if kind == "WithCTE":
            return self.outputs(node.children[-1], depth + 1)
        if not node.children and "output" in node.fields:
            return [column_id(tree(column)) for column in node.fields["output"]]
        return None


class _Rewrite:
    """Rebuilds the plan on the path of a trace. A new column is an alias with its own id at each projection, so the two
    sides of a join never share one."""

    def __init__(self, frame: DataFrame, trace: Trace):
        self._frame, self._trace = frame, trace
        self._java = _java_of(frame.sparkSession._jvm)
        self._ctes: dict[int, tuple[Sequence[int], Sequence[Any]]] = {}
        """The positions of columns whose remainders a `with` has at its end, and these remainders."""

    def frame(self, plan: Any, columns: dict[str, int]) -> DataFrame:
        """The frame with the remainders of these columns, each under its column's name."""
        from pyspark.sql import DataFrame

        built, found = self._carry(self._trace.root, plan, list(columns.values()))
        named = [self._alias(remainder, REMAINDER + name) for name, remainder in zip(columns, found)]
        built = self._project(plan.output(), named, built)
        session = self._frame.sparkSession
        return DataFrame(self._java.dataset.ofRows(session._jsparkSession, built), session)

    def _carry(self, node: Node, plan: Any, columns: Sequence[int]) -> tuple[Any, list[Any]]:
        """The plan with the remainders of these columns in its output, and each remainder as an attribute of it; None
        for a column that has none."""
        wanted = [column for column in columns if self._trace.carries(node, column)]
        if not wanted:
            return plan, [None] * len(columns)
        match short(node):
            case "Project":
                built, found = self._carry_project(node, plan, wanted)
            case "Join":
                built, found = self._carry_join(node, plan, wanted)
            case "Union":
                built, found = self._carry_union(node, plan, wanted)
            case "WithCTE":
                built, found = self._carry_with(node, plan, wanted)
            case "CTERelationRef":
                built, found = self._carry_reference(node, plan, wanted)
            case kind:
                built, found = self._carry(node.children[0], plan.children().apply(0), wanted)
                if kind != "View":  # a view lists its columns, and the plan is analysed already
                    built = plan.withNewChildren(self._seq([built]))
        by_column = dict(zip(wanted, found))
        return built, [by_column.get(column) for column in columns]

    def _carry_project(self, node: Node, plan: Any, columns: Sequence[int]) -> tuple[Any, list[Any]]:
        beside = [remainder_index(node, column) for column in columns]
        if all(index is not None for index in beside):
            output = plan.output()
            return plan, [output.apply(index) for index in beside]
        sources = [source_in(node, column) for column in columns]
        child, found = self._carry(node.children[0], plan.child(), [-1 if s is None else s for s in sources])
        added = [None if remainder is None else self._alias(remainder) for remainder in found]
        built = self._project(plan.projectList(), [alias for alias in added if alias is not None], child)
        return built, [None if alias is None else alias.toAttribute() for alias in added]

    def _carry_join(self, node: Node, plan: Any, columns: Sequence[int]) -> tuple[Any, list[Any]]:
        children = [plan.children().apply(index) for index in range(len(node.children))]
        found: dict[int, Any] = {}
        for index, side in enumerate(sides(node)):
            here = [column for column in columns if column not in found and self._trace.carries(side, column)]
            children[index], remainders = self._carry(side, children[index], here)
            found.update(zip(here, remainders))
        return plan.withNewChildren(self._seq(children)), [found[column] for column in columns]

    def _carry_union(self, node: Node, plan: Any, columns: Sequence[int]) -> tuple[Any, list[Any]]:
        """Adds the same columns at the end of every branch; a branch without a remainder has 0."""
        by_column = [self._trace.branches(node, column) for column in columns]
        children: list[Any] = []
        first: list[Any] = []
        for index, child in enumerate(node.children):
            before = plan.children().apply(index)
            branch = [branches[index][1] for branches in by_column]
            built, found = self._carry(child, before, [-1 if column is None else column for column in branch])
            added = [self._alias(self._java.zero if remainder is None else remainder) for remainder in found]
            children.append(self._project(before.output(), added, built))
            first = first or added
        return plan.withNewChildren(self._seq(children)), [alias.toAttribute() for alias in first]

    def _carry_with(self, node: Node, plan: Any, columns: Sequence[int]) -> tuple[Any, list[Any]]:
        children = [plan.children().apply(index) for index in range(len(node.children))]
        for index, definition in enumerate(node.children[:-1]):
            positions = sorted(self._trace.wanted_of_cte[definition.fields["id"]])
            outputs = self._trace.outputs(definition.children[0])
            if not positions or outputs is None:
                continue
            before = children[index].children().apply(0)
            built, found = self._carry(definition.children[0], before, [outputs[at] for at in positions])
            added = [self._alias(remainder) for remainder in found]
            built = self._project(before.output(), added, built)
            children[index] = children[index].withNewChildren(self._seq([built]))
            self._ctes[definition.fields["id"]] = positions, [alias.toAttribute() for alias in added]
        children[-1], found = self._carry(node.children[-1], children[-1], columns)
        return plan.withNewChildren(self._seq(children)), found

    def _carry_reference(self, node: Node, plan: Any, columns: Sequence[int]) -> tuple[Any, list[Any]]:
        """A reference lists its columns in the order of the query's; the query has the remainders at its end."""
        positions, remainders = self._ctes[node.fields["cteId"]]
        added = [remainder.newInstance() for remainder in remainders]
        built = self._java.reference(
            plan.cteId(),
            plan._resolved(),
            self._appended(plan.output(), added),
            plan.isStreaming(),
            plan.statsOpt(),
            plan.recursive(),
            plan.maxRows(),
            plan.isUnlimitedRecursion(),
        )
        named = self._trace.outputs(node) or []
        return built, [added[positions.index(named.index(column))] for column in columns]

    def _project(self, first: Any, added: Sequence[Any], child: Any) -> Any:
        return self._java.project(self._appended(first, added), child)

    def _alias(self, expression: Any, name: str = REMAINDER) -> Any:
        java = self._java
        return java.alias(expression, name, java.named.newExprId(), java.empty, java.none, java.empty)

    def _appended(self, first: Any, added: Sequence[Any]) -> Any:
        for one in added:
            first = first.appended(one)
        return first

    def _seq(self, values: Sequence[Any]) -> Any:
        return self._appended(self._java.empty, values)


@dataclass(frozen=True)
class _JavaCalls:
    """Calls into the JVM. Each name of a package costs a call to find, so names are found once."""

    project: Any
    reference: Any
    alias: Any
    named: Any
    dataset: Any
    zero: Any
    none: Any
    empty: Any


_found: WeakKeyDictionary[Any, _JavaCalls] = WeakKeyDictionary()


def _java_of(jvm: Any) -> _JavaCalls:
    if jvm not in _found:
        sql = jvm.org.apache.spark.sql
        plans, expressions = sql.catalyst.plans.logical, sql.catalyst.expressions
        _found[jvm] = _JavaCalls(
            project=plans.Project,
            reference=plans.CTERelationRef,
            alias=expressions.Alias,
            named=expressions.NamedExpression,
            dataset=sql.classic.Dataset,
            zero=expressions.Literal(0, sql.types.DataTypes.IntegerType),
            none=jvm.scala.Option.apply(None),
            empty=jvm.org.apache.spark.api.python.PythonUtils.toSeq(jvm.java.util.ArrayList()),
        )
    return _found[jvm]


def short(node: Node) -> str:
    """The class of a logical plan, without its package."""
    return node.kind.rpartition(".")[2]


def sides(join: Node) -> list[Node]:
    """The children of a join whose columns are in its output."""
    left_alone = any(kind in str(join.fields["joinType"]) for kind in _LEFT_ALONE)
    return join.children[:1] if left_alone else join.children


def items(project: Node) -> list[Node]:
    """The named expressions of a projection or an aggregate."""
    listed = project.fields.get("projectList", project.fields.get("aggregateExpressions", []))
    return [tree(item) for item in listed]


def column_id(named: Node) -> int:
    """The id of a named expression; -1 for one that has none."""
    return int((named.fields.get("exprId") or {}).get("id", -1))


def source_in(project: Node, column: int) -> int | None:
    """The child's column that a projection passes on as this one, under any name."""
    for item in items(project):
        if column_id(item) == column:
            named = item.children[0] if item.kind == EXPRESSIONS + "Alias" else item
            return column_id(named) if named.kind == EXPRESSIONS + "AttributeReference" else None
    return None


def remainder_index(project: Node, column: int) -> int | None:
    """The position of the remainder beside a time, in the projection of an input that has both."""
    listed = items(project)
    name = next((item.fields.get("name") for item in listed if column_id(item) == column), None)
    return next((at for at, item in enumerate(listed) if item.fields.get("name") == f"{REMAINDER}{name}"), None)
