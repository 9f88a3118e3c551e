"""Messages in tables of a lake: packages of formats, tables, and what is written to them.

The job is ``mqlog_jobs.spark.archive``.
"""
