"""The manifest as values: one model for TOML, JSON and the JSON Schema.

It also has the keys whose behaviour comes later (`support.py` lists them). Unknown keys are refused, nothing is
converted by guessing. `checks.py` makes the checks that need more than one value.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, JsonValue

from headwater.base import limits
from headwater.connectors.registry import Abilities, abilities_of
from headwater.manifest.vocabulary import (
    ColumnName,
    CronText,
    DecimalMark,
    Duration,
    HostName,
    Listed,
    Moment,
    PipelineName,
    ProjectName,
    PythonReference,
    Rate,
    Schedule,
    SecretName,
    StoreTable,
    Text,
    TimeFormat,
    TimeOfDay,
    TimeZone,
    TypeText,
)

Mode = Literal["append", "upsert", "replace"]
Names = Annotated[tuple[ColumnName, ...], Listed]
Later = JsonValue
"""A key whose behaviour comes later: any value, which `support.py` reports."""


class Spec(BaseModel):
    """A part of a manifest: frozen, strict, without unknown keys."""

    # `defer_build`: a command that only shows help, or reads no manifest, does not build 27 validators.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)


def _short_for(key: str, full: type[Spec]) -> BeforeValidator:
    """Lets a bare text mean the table `{key = text}`."""

    def widen(value: object) -> object:
        return {key: value} if isinstance(value, str) else value

    return BeforeValidator(widen, json_schema_input_type=str | full)


def _spark_text(value: object) -> object:
    """Spark's settings are texts: `8` and `true` are written as Spark reads them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


class ColumnSpec(Spec):
    """A declared column. `default` is what the rows from before the column show; `renamed_from` keeps the
    column's identity under a new name; `format`, `timezone` and `decimal` say how the source writes its texts."""

    type: TypeText
    nullable: bool | None = None
    default: JsonValue = None
    renamed_from: ColumnName | None = None
    redact: bool = False
    format: TimeFormat | None = None
    timezone: TimeZone | None = None
    decimal: DecimalMark | None = None


class TableSettings(Spec):
    """The keys of any table of the store, whether a source or a ripple fills it."""

    primary_key: Names = ()
    columns: dict[ColumnName, Annotated[ColumnSpec, _short_for("type", ColumnSpec)]] = Field(default_factory=dict)
    mode: Mode | None = None
    compaction: Later = None
    cluster_by: Later = None
    partition_by: Later = None
    access_pattern: Later = None
    retain_runs: Later = None
    indexes: Later = None
    redact: Later = None
    agent_description: Later = None


class TableSpec(TableSettings):
    """One table of a source. `name` is the source's own name for it, `as` the store's where they differ; `exclude` are
    columns of the source that do not land."""

    name: Text
    as_name: StoreTable | None = Field(default=None, alias="as")
    incremental: ColumnName | None = None
    exclude: Names = ()

    @property
    def table(self) -> str:
        """The table's name in the store."""
        return self.as_name or self.name

    @property
    def effective_mode(self) -> Mode:
        """The mode by the manifest alone; a key that only the source knows makes the default `upsert`."""
        return self.mode or ("upsert" if self.primary_key else "append")


class RippleSpec(TableSettings):
    """One step of a pipeline that reads other pipelines, and the table or view it makes."""

    name: StoreTable
    sql: Text | None = None
    python: PythonReference | None = None
    after: Annotated[tuple[StoreTable, ...], Listed] = ()
    materialize: Literal["table", "view"] = "table"
    timeout: Duration | None = None


class SourceSpec(Spec):
    connector: Text
    config: dict[str, JsonValue] = Field(default_factory=dict)


class DestinationSpec(Spec):
    connector: Text
    config: dict[str, JsonValue] = Field(default_factory=dict)


class SourceRef(Spec):
    """A pipeline that another one reads."""

    pipeline: PipelineName
    required: bool = True


class WaveSpec(Spec):
    kind: Literal["wave"]


class TideSpec(Spec):
    kind: Literal["tide"]
    max_staleness: Duration


class CronSpec(Spec):
    kind: Literal["cron"]
    at: CronText
    timezone: TimeZone = "UTC"


TriggerSpec = Annotated[WaveSpec | TideSpec | CronSpec, Discriminator("kind")]


class WindowSpec(Spec):
    """When an Inlet's source may be read: from `start`, repeated after `every`, for `duration`."""

    start: TimeOfDay
    every: Duration = "1d"
    duration: Duration
    timezone: TimeZone = "UTC"


class RetrySpec(Spec):
    immediately: Annotated[int, Field(ge=0)] = 0
    on_change: Annotated[int, Field(ge=0)] = 0


class BackfillSpec(Spec):
    window: Duration | None = None
    parallelism: Annotated[int, Field(ge=1)] | None = None
    rate_budget: Rate | None = None
    start_from: Moment | None = None
    max_chunks_per_tick: Annotated[int, Field(ge=1)] | None = None
    destination_writes_per_sec: Annotated[int, Field(ge=1)] | None = None


class PipelineSpec(Spec):
    """One pipeline: an Inlet reads a `source`, any other one reads the pipelines in `sources`."""

    id: PipelineName
    source: SourceSpec | None = None
    sources: Annotated[
        tuple[Annotated[SourceRef, _short_for("pipeline", SourceRef)], ...],
        Listed,
    ] = ()
    tables: Annotated[tuple[Annotated[TableSpec, _short_for("name", TableSpec)], ...], Listed] = ()
    incremental: ColumnName | None = None
    secrets: Annotated[tuple[SecretName, ...], Listed] = ()
    destination: DestinationSpec | None = None
    on_bad_row: Literal["refuse", "dead_letter"] | None = None
    max_bad_rows: Annotated[int, Field(ge=1, le=limits.MOST_BAD_ROWS)] | None = None
    on_bad_file: Literal["fail", "dead_letter"] | None = None
    max_bad_files: Annotated[int, Field(ge=1, le=limits.SLICE_FILES)] | None = None
    schedule: Schedule | None = None
    poll: Duration | None = None
    triggers: Annotated[tuple[TriggerSpec, ...], Listed] = ()
    windows: Annotated[tuple[WindowSpec, ...], Listed] = ()
    retry: RetrySpec | None = None
    timeout: Duration | None = None
    always_run: bool = False
    transforms: Annotated[tuple[JsonValue, ...], Listed] = ()
    backfill: BackfillSpec | None = None
    ripples: Annotated[tuple[RippleSpec, ...], Listed] = ()

    @property
    def is_inlet(self) -> bool:
        return self.source is not None

    @property
    def abilities(self) -> Abilities:
        """What its connector can do; the defaults without a source."""
        return abilities_of(self.source.connector if self.source is not None else None)

    @property
    def bad_rows_kept(self) -> int:
        """The most bad rows of a slice that are kept as dead letters; one more fails the slice."""
        if (self.on_bad_row or self.abilities.bad_rows) != "dead_letter":
            return 0
        return self.max_bad_rows or limits.MAX_BAD_ROWS

    @property
    def bad_files_kept(self) -> int:
        """The most unreadable files of a slice that are kept as dead letters; one more fails the slice."""
        return 0 if self.on_bad_file == "fail" else self.max_bad_files or limits.MAX_BAD_FILES

    def incremental_of(self, table: TableSpec) -> str | None:
        """The cursor column of a table: its own, else the pipeline's."""
        return table.incremental or self.incremental

    @property
    def is_pushed(self) -> bool:
        """Whether rows are pushed to its tables, instead of read from a source."""
        return self.source is not None and self.source.connector == "push"


class ProjectSection(Spec):
    """`drop` is the folder whose files land by themselves, one folder for each table."""

    name: ProjectName | None = None
    version: Text | None = None
    drop: Text = "drop"


class ContextSection(Spec):
    """Where the store is, and how long an idempotency key of pushed rows is valid. `catalog` is `sqlite`, a PostgreSQL
    URL without a password, or a reference."""

    path: Text = ".headwater/context"
    catalog: Text = "sqlite"
    default_destination: Text = "context"
    ledger_ttl: Duration = "24h"


class SparkSection(Spec):
    master: Text = "local[*]"
    conf: dict[str, Annotated[str, BeforeValidator(_spark_text, json_schema_input_type=str | bool | int | float)]] = (
        Field(default_factory=dict)
    )
    packages: Annotated[tuple[Text, ...], Listed] = ()
    remote: Text | None = None
    python: Text | None = None
    driver_memory: Text | None = None


class OtlpSection(Spec):
    """The ports where `headwater serve` takes OTLP. The address, the names and the token are those of `[serve]`."""

    grpc_port: Annotated[int, Field(ge=0, le=65_535)] = 4317
    http_port: Annotated[int, Field(ge=0, le=65_535)] = 4318


class ServeSection(Spec):
    """How `headwater serve` is reached, and how much it does at once. `token` and `webhook_secret` are references."""

    host: HostName = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8372
    token: Text | None = None
    hosts: Annotated[tuple[HostName, ...], Listed] = ()
    webhook_secret: Text | None = None
    otlp: OtlpSection | None = None
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    max_jobs: Annotated[int, Field(ge=1)] | None = None
    max_jobs_per_pipeline: Annotated[int, Field(ge=1)] | None = None


class EncryptionSection(Spec):
    key_source: Text


class ProjectSpec(Spec):
    """`headwater.toml` without its inline pipelines."""

    project: ProjectSection = Field(default_factory=ProjectSection)
    context: ContextSection = Field(default_factory=ContextSection)
    spark: SparkSection = Field(default_factory=SparkSection)
    serve: ServeSection = Field(default_factory=ServeSection)
    sync: Later = None
    encryption: EncryptionSection | None = None
    signing_keys: Later = None


def definition_fingerprint(spec: PipelineSpec) -> str:
    """`sha256:` and the hash of the pipeline's canonical JSON: equal for TOML and JSON, for any order of keys, and
    whether or not a default is written out."""
    return fingerprint_of(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))


def fingerprint_of(value: object) -> str:
    """`sha256:` and the hash of the value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
