"""A query that copies the messages of a store or a cluster to Parquet until it is killed.

python copied_query.py PLACE TARGET SCHEMA OPTIONS, with the options of the read as JSON.
"""

import json
import sys

from mqlog_jobs.machine.session import LOOPBACK, QUIET, session


def main(place: str, target: str, schema: str, options: str) -> None:
    spark = session("copied query", {**QUIET, **LOOPBACK, "spark.master": "local[2]"})
    reader = spark.readStream.schema(schema).format("mqlog")
    reader = reader.option("startingOffsets", "earliest").options(**json.loads(options))
    rows = reader.load(place)
    writer = rows.writeStream.format("parquet").option("path", f"{target}/rows")
    writer.option("checkpointLocation", f"{target}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
