"""The reference says what the code says: every command, key, code, table, record and type, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pyarrow as pa
import pytest
import typer

from docs.pages import ROOT
from headwater.base.errors import CODES, Exit
from headwater.base.text_form import DIRECTIVES, TextForm
from headwater.base.types import SIMPLE, converts, parse_type, to_arrow, widens
from headwater.catalog import sql_tables as tables
from headwater.catalog.records import Change
from headwater.coerce import row_errors as coerce_errors
from headwater.coerce.row_errors import Refused
from headwater.coerce.text_columns import coerce_strings
from headwater.coerce.values import coerce_value
from headwater.connectors.registry import CONNECTORS
from headwater.duck.duck_types import shown_type
from headwater.interfaces.cli.main import app
from headwater.manifest import spec

REFERENCE = ROOT / "docs" / "reference"
_CODE = re.compile(r"`([^`]+)`")

SECTIONS: dict[str, tuple[type[spec.Spec], ...]] = {
    "Project": (spec.ProjectSpec,),
    "project": (spec.ProjectSection,),
    "context": (spec.ContextSection,),
    "spark": (spec.SparkSection,),
    "serve": (spec.ServeSection,),
    "serve.otlp": (spec.OtlpSection,),
    "encryption": (spec.EncryptionSection,),
    "Pipeline": (spec.PipelineSpec,),
    "source": (spec.SourceSpec,),
    "destination": (spec.DestinationSpec,),
    "tables": (spec.TableSpec,),
    "columns": (spec.ColumnSpec,),
    "sources": (spec.SourceRef,),
    "triggers": (spec.WaveSpec, spec.TideSpec, spec.CronSpec),
    "windows": (spec.WindowSpec,),
    "retry": (spec.RetrySpec,),
    "backfill": (spec.BackfillSpec,),
    "ripples": (spec.RippleSpec,),
}


def sections(page: str) -> dict[str, str]:
    """The text under each heading of a page, up to the next one."""
    found: dict[str, str] = {}
    for part in re.split(r"^#+ ", (REFERENCE / page).read_text(), flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        assert heading not in found, f"{page} has two headings `{heading}`"
        found[heading] = body
    return found


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of a text, without their headers."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("|---"):
            found.pop()
        elif line.startswith("|"):
            found.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found


def column(text: str, header: str) -> list[str]:
    """The names in backticks in the column of that header, over all tables of a text that have one."""
    found: list[str] = []
    place: int | None = None
    for line in text.splitlines():
        if not line.startswith("|"):
            place = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if header in cells:
            place = cells.index(header)
        elif place is not None and not line.startswith("|---"):
            found += _CODE.findall(cells[place])
    return found


def commands(command: Any, path: str = "headwater") -> Iterator[tuple[str, set[str]]]:
    """Every command that does something, and its options."""
    inner = getattr(command, "commands", None)
    options = {name for parameter in command.params for name in parameter.opts if name.startswith("-")}
    if inner is None or path == "headwater" or command.invoke_without_command:
        yield path, options
    for name, child in (inner or {}).items():
        yield from commands(child, f"{path} {name}")


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_documented(command: str) -> None:
    documented = set(column(sections("cli.md")[command], "option")) - {"-h", "--help"}
    assert documented == COMMANDS[command]


def test_no_command_is_documented_that_does_not_exist() -> None:
    assert {heading for heading in sections("cli.md") if heading.startswith("headwater")} == COMMANDS.keys()


def test_every_environment_variable_is_documented() -> None:
    used: set[str] = set()
    for path in (ROOT / "src" / "headwater").rglob("*.py"):
        used |= set(re.findall(r"[\"'](HEADWATER_[A-Z_]+)[\"']", path.read_text()))
    used = {name for name in used if "__" not in name and not name.endswith("_")}
    documented = {name for name in column(sections("cli.md")["Environment"], "variable") if "<" not in name}
    assert documented == used


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_of_the_manifest_is_documented(section: str) -> None:
    keys = {field.alias or name for model in SECTIONS[section] for name, field in model.model_fields.items()}
    if section == "triggers":
        keys.remove("kind")
    if section == "ripples":  # the others are those of a table, which the page says in words
        keys -= spec.TableSettings.model_fields.keys()
    assert set(column(sections("manifest.md")[section], "key")) == keys


def test_every_part_of_the_manifest_has_a_section() -> None:
    parts = {value for value in vars(spec).values() if isinstance(value, type) and issubclass(value, spec.Spec)}
    documented = {model for models in SECTIONS.values() for model in models}
    assert parts - documented == {spec.Spec, spec.TableSettings}


def test_a_key_is_marked_later_exactly_if_it_does_nothing_yet() -> None:
    from headwater.manifest import support

    marked = {
        row[0].strip("`")
        for section in ("Pipeline", "tables")
        for row in rows(sections("manifest.md")[section])
        if row[-1].startswith("*later*")
    }
    assert marked == support._PIPELINE_KEYS.keys() | support._TABLE_KEYS.keys()


def test_every_error_code_is_documented_as_it_is() -> None:
    documented = {row[0]: (row[1], int(row[2])) for row in rows(sections("errors.md")["Codes"])}
    assert documented == {code: (meaning, int(exit_)) for code, (meaning, exit_) in CODES.items()}


def test_every_exit_code_is_documented() -> None:
    assert {int(row[0]) for row in rows(sections("errors.md")["Errors"])} == {int(exit_) for exit_ in Exit}


def test_every_table_of_the_catalog_is_documented_with_its_columns() -> None:
    documented = {
        row[0].strip("`"): _CODE.findall(row[1]) for row in rows(sections("store.md")["Catalog"]) if len(row) == 2
    }
    assert documented == {name: [c.name for c in table.columns] for name, table in tables.metadata.tables.items()}


def test_every_kind_of_log_record_is_documented() -> None:
    kinds = [record.__struct_config__.tag for record in get_args(Change)]
    assert column(sections("store.md")["Log records"], "do") == kinds


@pytest.mark.parametrize("connector", [name for name, info in CONNECTORS.items() if info.kind == "source"])
def test_every_key_of_a_connector_is_documented(connector: str) -> None:
    (problem,) = [p for p in CONNECTORS[connector].check_config({"%": 1}) if p[0] == "%"]
    known = [] if problem[2] == "it takes no keys" else problem[2].removeprefix("known keys: ").split(", ")
    assert column(sections("connectors.md")[connector], "key") == known


def test_every_connector_is_documented() -> None:
    assert {name for name, info in CONNECTORS.items() if info.kind == "source"} <= sections("connectors.md").keys()


def test_every_type_is_documented_as_it_is_stored_and_shown() -> None:
    documented = rows(sections("types.md")["Types"])
    assert {re.split(r"[(<]", row[0].strip("`"))[0] for row in documented} == {
        *SIMPLE,
        *("decimal", "vector", "list", "struct"),
    }
    for name, _, arrow, duck in documented:
        if name.strip("`") in SIMPLE:
            type_ = parse_type(name.strip("`"))
            assert (str(to_arrow(type_)), shown_type(type_)) == (arrow.strip("`"), duck.strip("`"))


@pytest.mark.parametrize("row", rows(sections("types.md")["Widening"]), ids=lambda row: " ".join(row[:2]))
def test_widening_is_as_documented(row: list[str]) -> None:
    old, new = (parse_type(cell.strip("`")) for cell in row[:2])
    happens = "automatically" if widens(old, new) else "after `schema accept`"
    if not converts(old, new):
        happens += "; older rows show null"
    assert row[2] == happens


@pytest.mark.parametrize("row", rows(sections("types.md")["Values"]), ids=lambda row: " ".join(row[:2]))
def test_a_value_becomes_what_the_page_says(row: list[str]) -> None:
    type_, source = (cell.strip("`") for cell in row[:2])
    try:
        found = f"`{coerce_value(source, parse_type(type_))}`"
    except Refused as refused:
        found = f"rejected: `{refused.reason}`"
    assert row[2] == found


def test_every_reason_of_a_bad_row_is_documented() -> None:
    reasons = set(_CODE.findall((coerce_errors.__doc__ or "").partition("Reasons:")[2]))
    assert reasons <= set(_CODE.findall(sections("types.md")["Values"]))


FORMATS = [row for row in rows(sections("types.md")["Formats"]) if len(row) == 3]


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: " ".join(row[:2]))
def test_a_text_of_a_declared_form_becomes_what_the_page_says(row: list[str]) -> None:
    name, *form = _CODE.findall(row[0])
    type_ = parse_type(name)
    is_time = type_.kind in ("timestamp", "date")
    declared = TextForm(*form) if is_time else TextForm(decimal=form[0])
    array, errors = coerce_strings(pa.array([row[1].strip("`")]), type_, declared)
    if errors:
        assert row[2] == f"rejected: `{errors[0].reason}`"
        return
    text = str(array.cast(pa.string())[0])
    if type_.kind == "timestamp":
        text = text.replace(" ", "T").rstrip("Z").rstrip("0").rstrip(".").ljust(len("2010-01-02T03:04:00"), "0") + "Z"
    assert row[2] == f"`{text}`"


def test_every_directive_of_a_format_is_documented() -> None:
    documented = [row for row in rows(sections("types.md")["Formats"]) if len(row) == 2]
    assert {name.strip("`%"): what for name, what in documented} == dict(DIRECTIVES)
