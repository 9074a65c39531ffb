"""Checks the SQL of a model, as Spark parses it, before anything of it runs.

`runtime/model_sql_allowed.py` checks the text when the manifest is read, with another parser. This is the second check,
on Spark's own plans, and decides if the two parsers differ. The parsed plan is checked before Spark resolves it: a
command would run at once, and a path would be listed. The analysed plan is checked before the first job: its relations
are the model's inputs and nothing else.

What is not in a list below is refused. Spark's JSON of a plan has no maps (the definitions of named windows), so
functions are checked twice: by name in the parsed plan, by class in the analysed one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.spark.plan_json import ANALYSIS, EXPRESSIONS, PLANS, Node, plan_tree
from headwater.spark.sql_functions import ALLOWED_FUNCTIONS, OPERATORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLANS_WORDS = """
Aggregate CTERelationDef CTERelationRef Distinct Except Expand Filter Generate GlobalLimit Intersect Join
LateralJoin LocalLimit LocalRelation Offset OneRowRelation Pivot Project Range RebalancePartitions Repartition
RepartitionByExpression ResolvedHint Sample Sort SubqueryAlias Union UnionLoop UnionLoopRef Unpivot UnresolvedHint
UnresolvedWith Window WithCTE WithWindowDefinition
"""
_PLANS = frozenset(_PLANS_WORDS.split())
_UNRESOLVED_WORDS = """
MultiAlias ResolvedInlineTable TempResolvedColumn UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue
UnresolvedFunction UnresolvedGenerator UnresolvedHaving UnresolvedInlineTable UnresolvedOrdinal UnresolvedRegex
UnresolvedRelation UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedStarWithColumns
UnresolvedStarWithColumnsRenames UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction
"""
_UNRESOLVED = frozenset(_UNRESOLVED_WORDS.split())
_REFUSED_EXPRESSIONS_WORDS = """
ApplyFunctionExpression CallMethodViaReflection Collations CurrentCatalog CurrentDatabase CurrentUser FromAvro
FromProtobuf InputFileBlockLength InputFileBlockStart InputFileName PythonUDAF PythonUDF PythonUDTF ScalaUDF
SchemaOfAvro SchemaOfXml SparkVersion SQLKeywords ToAvro ToProtobuf TryReflect UnresolvedPolymorphicPythonUDTF
VariableReference XmlToStructs XPathBoolean XPathDouble XPathFloat XPathInt XPathList XPathLong XPathShort XPathString
"""
_REFUSED_EXPRESSIONS = frozenset(_REFUSED_EXPRESSIONS_WORDS.split())
_FUNCTIONS = {f"[{name}]" for name in ALLOWED_FUNCTIONS | OPERATORS}
"""A name of one part, as Spark writes it."""
_passed: set[tuple[object, ...]] = set()
"""Queries that were checked, each with the columns of its inputs."""
_HINT = "a model's SQL computes over its inputs alone; a Python ripple may do this: its code runs with your rights"


class _NotAllowed(Exception):
    """The part of a query that is not allowed."""


def checked_sql(session: SparkSession, sql: str, inputs: Mapping[str, Hashable], *, subject: str) -> DataFrame:
    """The query's result, over inputs that are temporary views of the session. Raises HW-R01 for a query that reads
    anything else; then nothing of it has run. `subject` is what the query makes. `inputs` gives what determines the
    columns of each: a query that has passed over the same columns passes again."""
    jvm = session._jvm
    query = (sql, *inputs.items())
    if query in _passed:
        return _result(session, sql)
    try:
        _check_parsed(plan_tree(jvm, session._jsparkSession.sessionState().sqlParser().parsePlan(sql)))
        frame = _result(session, sql)
        _check_analysed(plan_tree(jvm, frame._jdf.queryExecution().analyzed()), {name.lower() for name in inputs})
    except _NotAllowed as refused:
        raise HeadwaterError("HW-R01", f"the SQL of {subject} {refused}", hint=_HINT) from refused
    if len(_passed) >= limits.CHECKED_QUERIES:
        _passed.clear()
    _passed.add(query)
    return frame


def _result(session: SparkSession, sql: str) -> DataFrame:
    """`session.sql(sql)` without the calls for its arguments."""
    from pyspark.sql import DataFrame

    return DataFrame(session._jsparkSession.sql(sql), session)


def _check_parsed(plan: Node) -> None:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        _check_class(node)
        fields = node.fields
        match node.kind.removeprefix(ANALYSIS):
            case "UnresolvedFunction":
                _check_function(str(fields["nameParts"]))
            case "UnresolvedTableValuedFunction":
                _check_function(str(fields["name"]))
            case "UnresolvedGenerator":
                _check_function("[{funcName}]".format(**fields["name"]))
            case "UnresolvedRelation" if ", " in str(fields["multipartIdentifier"]):
                raise _NotAllowed(f"reads `{str(fields['multipartIdentifier'])[1:-1]}`, which is no input")
        waiting += [*node.children, *node.trees()]


def _check_analysed(plan: Node, inputs: Collection[str]) -> None:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.kind == PLANS + "View":
            name = node.fields["desc"]["identifier"]
            if not node.fields["isTempView"] or "database" in name or name["table"].lower() not in inputs:
                raise _NotAllowed(f"reads `{name['table']}`, which is no input")
            continue  # the plan of an input is not part of the query
        _check_class(node)
        waiting += [*node.children, *node.trees()]


def _check_class(node: Node) -> None:
    kind = node.kind
    if kind.startswith(EXPRESSIONS):
        allowed = kind.rpartition(".")[2] not in _REFUSED_EXPRESSIONS
    elif kind.startswith(ANALYSIS):
        allowed = kind.removeprefix(ANALYSIS) in _UNRESOLVED
    else:
        allowed = kind.removeprefix(PLANS) in _PLANS
    if not allowed:
        raise _NotAllowed(f"holds `{kind.rpartition('.')[2]}`, which a query of a model cannot hold")


def _check_function(name: str) -> None:
    if name.lower() not in _FUNCTIONS:
        raise _NotAllowed(f"calls `{name[1:-1]}`, which is no function that a model's SQL can call")
