# ruff: noqa: PLC0415 - when the package is imported is what is tried.
"""Reads a store in a session of its own: python discovered.py STORE import|session|late."""

import sys

from pyspark.sql import SparkSession


def main(store: str, how: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    if how == "session":
        from mqlog_jobs.machine.session import session

        spark = session("discovered", {"spark.master": "local[1]", "spark.ui.enabled": "false"})
    elif how == "import":
        import pyspark_mqlog

        spark = builder.getOrCreate()
        pyspark_mqlog.register(spark)
        spark = spark.newSession()  # What is registered is unknown to it: the look-up finds.
    else:
        spark = builder.getOrCreate()
        import pyspark_mqlog

        pyspark_mqlog.register(spark)
    sys.stdout.write(f"{spark.read.format('mqlog').load(store).count()} messages\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
