"""Subscriptions that stand in a table become the option."""

import json

import pytest
from pyspark.sql import SparkSession

from mqstore.errors import InvalidOptionError, InvalidSchemaError
from pyspark_mqlog.subscriptions import from_frame

pytestmark = pytest.mark.spark


def test_a_frame_becomes_the_option_and_contradictions_are_refused(spark: SparkSession) -> None:
    schema = "GROUP string, topic string, expression string, note int"
    rows = [
        ("g", "T", "A || B", 1),
        ("g", "*", None, 2),
        ("h", "T", "标签", 3),
        ("h", "T", "标签", 4),
    ]
    told = from_frame(spark.createDataFrame(rows, schema))
    assert json.loads(told) == {"g": {"T": "A || B", "*": "*"}, "h": {"T": "标签"}}
    typed = [("g", "T", "a > 5", "sql92"), ("g", "U", "A", None), ("g", "V", None, "SQL92")]
    frame = spark.createDataFrame(
        typed, "group string, topic string, expression string, expressionType string"
    )
    assert json.loads(from_frame(frame)) == {"g": {"T": {"sql": "a > 5"}, "U": "A", "V": "*"}}
    with pytest.raises(InvalidOptionError, match="not two"):
        from_frame(spark.createDataFrame([*rows, ("h", "T", "other", 5)], schema))
    with pytest.raises(InvalidOptionError, match="without group or topic"):
        from_frame(spark.createDataFrame([("g", None, "A", 1)], schema))
    with pytest.raises(InvalidSchemaError, match="expression"):
        from_frame(spark.createDataFrame([("g", "T")], "group string, topic string"))
