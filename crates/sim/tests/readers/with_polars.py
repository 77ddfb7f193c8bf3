"""Polars over the lakes."""

import re
from urllib.parse import unquote

import lake
import polars as pl

FOLDERS = {"tenant": pl.String, "queue": pl.String, "dt": pl.Date, "hour": pl.Int8}
HEAD = pl.Struct({"partition": pl.String, "offset": pl.UInt64, "transactionId": pl.String, "ts": pl.String})
S3 = {
    "aws_access_key_id": lake.ACCESS_KEY,
    "aws_secret_access_key": lake.SECRET_KEY,
    "aws_region": lake.REGION,
    "aws_endpoint_url": lake.ENDPOINT,
    "aws_allow_http": "true",
}


def parquet(name, root, options):
    files = lake.glob(name, root=root)
    return pl.scan_parquet(files, hive_partitioning=True, hive_schema=FOLDERS, storage_options=options)


def lines(name, root, options):
    """The line, cut before the payload; the folders come from the file's name."""
    scan = pl.scan_lines(lake.glob(name, root=root), include_file_paths="file", storage_options=options)
    line = pl.col("line")
    return scan.select(
        (line.str.extract(r'^(.*?),"payload":') + "}").str.json_decode(HEAD).alias("head"),
        line.str.extract(r'^.*?,"payload":(.*)\}$').alias("payload"),
        pl.col("file").str.extract(r"queue=([^/]*)/").alias("queue"),
        pl.col("file").str.extract(r"dt=([^/]*)/").str.to_date().alias("dt"),
        pl.col("file").str.extract(r"hour=([^/]*)/").cast(pl.Int8).alias("hour"),
    ).unnest("head").with_columns(pl.col("ts").str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ", time_unit="us", time_zone="UTC"))


def scan(name, root=lake.ROOT, options=None):
    if name in lake.PARQUET:
        return parquet(name, root, options)
    return lines(name, root, options)


def lossless(name, root=lake.ROOT, options=None):
    tx = "transaction_id" if name in lake.PARQUET else "transactionId"
    columns = ["queue", "partition", "offset", tx, "ts", "dt", "hour", "payload"]
    found = scan(name, root, options).select(columns).collect().rows()
    if name in lake.PARQUET:
        return [lake.row(*f) for f in found]
    return [lake.row(unquote(f[0]), *f[1:7], *lake.cut_base64(f[7])) for f in found]


def filters(name):
    asked, col = lake.ASKED, pl.col
    queue = scan(name).filter(col("queue") == asked["queue"])
    time = lambda text: pl.lit(text).str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ", time_unit="us", time_zone="UTC")
    day = pl.lit(asked["dt"]).str.to_date()
    rows = lambda where: queue.filter(where).select(pl.len()).collect().item()
    hour = (col("dt") == day) & (col("hour") == asked["hour"])
    told = {
        "partition": rows(col("partition") == asked["partition"]),
        "ts": rows(col("ts").is_between(time(asked["from"]), time(asked["to"]))),
        "hour": rows(hour),
        "otherHour": rows((col("dt") == day) & (col("hour") == asked["otherHour"])),
    }
    if name in lake.PARQUET:
        plan = queue.filter(hour).explain()
        told["files"] = len(re.findall(r"w-\d{10}-", plan.split("]")[0]))
    return told


def everywhere(name):
    ext = lake.extension(name)
    read = pl.scan_parquet if name in lake.PARQUET else pl.scan_lines
    globs = [f"{lake.ROOT}/{name}/**/*.{ext}", f"{lake.ROOT}/{name}/{lake.TENANT}/queue={lake.ASKED['queue']}/**/*.{ext}"]
    return [read(g).select(pl.len()).collect().item() for g in globs]


told = {}
for name in lake.JSONL + lake.PARQUET:
    told[name] = {
        "lossless": lossless(name),
        "s3": lossless(name, f"s3://{lake.BUCKET}", S3),
        "filters": filters(name),
        "everywhere": everywhere(name),
    }
lake.tell(told)
