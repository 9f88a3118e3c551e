"""Messages of a topic as a streaming table, a view of it, and paid orders as messages again.

A run reads what is stored by then and stops. The next one continues: each message is in the table
once, and in the topic PAID_ORDERS once.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Return the messages, from the first that the store holds."""
    return (
        spark.readStream.format("mqlog")
        .option("subscribe", spark.conf.get("mqlog.orders.topic"))
        .option("startingOffsets", "earliest")
        .load(spark.conf.get("mqlog.orders.store"))
    )


@dp.materialized_view
def orders_by_tag() -> DataFrame:
    """Count the messages of each tag."""
    return spark.read.table("orders").groupBy("tags").count()


dp.create_sink(
    name="paid_orders",
    format="mqlog",
    options={
        "path": spark.conf.get("mqlog.orders.target"),
        "topic": "PAID_ORDERS",
        "createStore": "true",
    },
)


@dp.append_flow(target="paid_orders")
def paid() -> DataFrame:
    """Return the paid orders, as messages of another store."""
    return spark.readStream.table("orders").where("tags = 'paid'").select("body", "tags", "keys")
