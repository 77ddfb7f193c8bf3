"""Spark over a local copy of the lakes."""

import lake
from pyspark.sql import SparkSession, functions as F

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "2g")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.files.openCostInBytes", "65536")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)

FOLDERS = "tenant string, queue string, dt date, hour int"
JSONL = f"partition string, offset long, transactionId string, ts timestamp, payload string, payloadBase64 string, {FOLDERS}"
PARQUET = f"partition string, offset long, transaction_id string, ts timestamp, payload string, {FOLDERS}"
# Jackson, inside Spark, takes strings of 20,000,000 characters; longer ones make a row of nulls, or stop FAILFAST.
MAX_STRING = 128 << 20
# Spark takes each %XX of a folder for a character; they are bytes of UTF-8.
QUEUE = F.decode(F.encode("queue", "ISO-8859-1"), "UTF-8").alias("queue")


def source(name):
    reader = spark.read.option("mode", "FAILFAST").option("maxStringLen", MAX_STRING)
    if name in lake.PARQUET:
        return reader.schema(PARQUET).parquet(f"{lake.ROOT}/{name}")
    return reader.schema(JSONL).json(f"{lake.ROOT}/{name}")


def told_rows(rows):
    time = F.date_format("ts", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    tx = "transaction_id" if "transaction_id" in rows.columns else "transactionId"
    base64 = "payloadBase64" if "payloadBase64" in rows.columns else F.lit(None)
    rows = rows.select(QUEUE, "partition", "offset", tx, time, "dt", "hour", "payload", base64)
    return [tuple(found) for found in rows.collect()]


def typed(name):
    return [lake.row(*found) for found in told_rows(source(name))]


def lossless(name):
    if name in lake.PARQUET:
        return typed(name)
    reader = spark.read.schema(f"value string, {FOLDERS}").option("lineSep", "\n")
    cut = (
        reader.text(f"{lake.ROOT}/{name}")
        .withColumn("at", F.expr("""instr(value, ',"payload":')"""))
        .withColumn("head", F.expr("from_json(substr(value, 1, at - 1) || '}', 'partition string, offset long, transactionId string, ts timestamp')"))
        .withColumn("payload", F.expr("substr(value, at + 11, length(value) - at - 11)"))
    )
    rows = told_rows(cut.select("queue", "dt", "hour", "head.*", "payload"))
    return [lake.row(*found[:7], *lake.cut_base64(found[7])) for found in rows]


def filters(name):
    asked, whole = lake.ASKED, source(name)
    rows = lambda where: whole.where(f"queue = '{asked['queue']}' and {where}").count()
    hour = f"dt = date'{asked['dt']}' and hour = {asked['hour']}"
    files = whole.where(f"queue = '{asked['queue']}' and {hour}").select(F.input_file_name()).distinct()
    return {
        "partition": rows(f"partition = '{asked['partition']}'"),
        "ts": rows(f"ts between timestamp'{asked['from']}' and timestamp'{asked['to']}'"),
        "hour": rows(hour),
        "otherHour": rows(f"dt = date'{asked['dt']}' and hour = {asked['otherHour']}"),
        "files": files.count(),
    }


def everywhere(name):
    return [spark.read.text(f"{lake.ROOT}/{name}/{lake.TENANT}/queue={lake.ASKED['queue']}", lineSep="\n").count()]


told = {}
for name in lake.JSONL + lake.PARQUET:
    told[name] = {"typed": typed(name), "lossless": lossless(name), "filters": filters(name)}
    if name in lake.JSONL:
        told[name]["everywhere"] = [None] + everywhere(name)
lake.tell(told)
