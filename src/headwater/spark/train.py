"""Makes a class-data archive, as a program: `python -m headwater.spark.train DIRECTORY`, started by `archive`.

It makes Spark do once what a landing does, while the JVM records each class that it loads, and then the JVM dumps those
classes. That takes a minute and a gigabyte, at the lowest priority.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.spark import archive as archives
from headwater.spark.java import Java, find_java
from headwater.spark.session import SparkSettings, start_direct

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def make_archive(directory: Path) -> bool:
    """Make the archive of this directory, unless it is there or another process is making it. True if it is there."""
    java = find_java()
    with archives.the_only_maker(directory) as alone:
        if not alone or archives.archive_directory(java) != directory:
            return False
        file = directory / "classes.jsa"
        if file.exists():
            return True
        for left_over in directory.glob(".making-*"):
            left_over.unlink(missing_ok=True)
        archives.write_unsigned_jars(directory)
        names = directory / ".making-names"
        dumped = directory / ".making-classes"
        _train(java, names)
        _dump(java, directory, names, dumped)
        names.unlink()
        dumped.replace(file)
        archives.remove_old_archives(keep=directory)
    return True


def _train(java: Java, names: Path) -> None:
    session, gateway = start_direct(
        SparkSettings(), java, archive=None, short=True, options=[f"-XX:DumpLoadedClassList={names}"]
    )
    try:
        with tempfile.TemporaryDirectory(prefix="headwater-train-") as scratch:
            _exercise(session, Path(scratch))
        session.stop()
    finally:
        gateway.end()


def _exercise(spark: SparkSession, scratch: Path) -> None:
    """What landings and ripples make Spark do: jobs of Python functions, Parquet in both directions, SQL."""
    from pyspark.sql import functions

    spark.range(0, 4, 1, 2).mapInArrow(_rows_counted, "rows long, body binary").collect()
    frame = spark.createDataFrame([(1, "a", 0.5), (2, "b", 1.5)], "id long, name string, amount double")
    frame.mapInArrow(_rows_counted, "rows long, body binary").collect()
    frame.write.parquet(str(scratch / "a"))
    frame.withColumn("at", functions.timestamp_micros(functions.col("id"))).write.json(str(scratch / "b"))
    read = spark.read.parquet(str(scratch / "a"))
    read.createOrReplaceTempView("a")
    spark.read.schema("id long, name string").json(str(scratch / "b")).createOrReplaceTempView("b")
    spark.sql(
        "select a.name, sum(amount) as total, count(*) as n from a join b on a.id = b.id"
        " where a.amount > 0 group by 1 order by 2 desc limit 10"
    ).collect()
    read.select("id").unionByName(read.selectExpr("cast(id + 1 as long) as id")).distinct().count()


def _rows_counted(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "body": [b""]})


def _dump(java: Java, directory: Path, names: Path, dumped: Path) -> None:
    subprocess.run(
        [
            str(java.executable),
            "-XX:+UseSerialGC",
            "-Xshare:dump",
            f"-XX:SharedClassListFile={names}",
            f"-XX:SharedArchiveFile={dumped}",
            "-cp",
            archives.archived_class_path(directory),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=limits.ARCHIVE_SECONDS,
    )


def main(directory: Path) -> None:
    os.nice(19)
    try:
        make_archive(directory)
    except (HeadwaterError, OSError, subprocess.SubprocessError):
        archives.note_failure(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
