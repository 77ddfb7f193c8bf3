"""PyArrow over the lakes: Parquet as a dataset, JSONL as lines."""

import json
import re
from urllib.parse import unquote

import lake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
from pyarrow import fs

FOLDERS = pa.schema([("tenant", pa.string()), ("queue", pa.string()), ("dt", pa.date32()), ("hour", pa.int8())])
LOCAL = fs.LocalFileSystem()
S3 = fs.S3FileSystem(
    access_key=lake.ACCESS_KEY,
    secret_key=lake.SECRET_KEY,
    region=lake.REGION,
    endpoint_override=lake.ENDPOINT.removeprefix("http://"),
    scheme="http",
)


def dataset(name, root, files):
    hive = ds.partitioning(FOLDERS, flavor="hive")
    return ds.dataset(f"{root}/{name}", filesystem=files, format="parquet", partitioning=hive)


def parquet(name, root, files):
    columns = ["queue", "partition", "offset", "transaction_id", "ts", "dt", "hour", "payload"]
    table = dataset(name, root, files).to_table(columns=columns)
    return [lake.row(*found.values()) for found in table.to_pylist()]


def paths(name, root, files):
    found = files.get_file_info(fs.FileSelector(f"{root}/{name}", recursive=True))
    return sorted(f.path for f in found if f.is_file and "/_queen/" not in f.path)


def lines(path, files):
    """The lines of one file; pa.csv with one column, since pa.json makes numbers and structs of payloads."""
    compression = {"zst": "zstd", "gz": "gzip"}.get(path.rsplit(".", 1)[1])
    with files.open_input_stream(path, compression=compression) as stream:
        table = pa.csv.read_csv(
            stream,
            read_options=pa.csv.ReadOptions(column_names=["line"], block_size=128 << 20),
            parse_options=pa.csv.ParseOptions(delimiter="\x01", quote_char=False),
            convert_options=pa.csv.ConvertOptions(column_types={"line": pa.string()}, strings_can_be_null=False),
        )
    return table["line"].to_pylist()


def jsonl(name, root, files):
    rows = []
    for path in paths(name, root, files):
        queue, dt, hour = re.search(r"queue=([^/]*)/dt=([^/]*)/hour=([^/]*)/", path).groups()
        for line in lines(path, files):
            head, payload = line[:-1].split(',"payload":', 1)
            head = json.loads(head + "}")
            known = [head["partition"], head["offset"], head["transactionId"], head["ts"]]
            rows.append(lake.row(unquote(queue), *known, dt, hour, *lake.cut_base64(payload)))
    return rows


def filters(name):
    asked, field = lake.ASKED, ds.field
    whole = dataset(name, lake.ROOT, LOCAL)
    queue = field("queue") == asked["queue"]
    time = lambda text: pa.scalar(text).cast(pa.timestamp("us", "UTC"))
    day = field("dt") == pa.scalar(asked["dt"]).cast(pa.date32())
    hour = queue & day & (field("hour") == asked["hour"])
    return {
        "partition": whole.count_rows(filter=queue & (field("partition") == asked["partition"])),
        "ts": whole.count_rows(filter=queue & (field("ts") >= time(asked["from"])) & (field("ts") <= time(asked["to"]))),
        "hour": whole.count_rows(filter=hour),
        "otherHour": whole.count_rows(filter=queue & day & (field("hour") == asked["otherHour"])),
        "files": len(list(whole.get_fragments(filter=hour))),
    }


def skipped():
    """Row groups that a filter on the partition leaves to read, and all."""
    wanted = ds.field("partition") == lake.ASKED["pagesPartition"]
    whole = dataset("pages.parquet", lake.ROOT, LOCAL)
    fragments = list(whole.get_fragments())
    read = sum(len(f.split_by_row_group(filter=wanted)) for f in fragments)
    return {"rows": whole.count_rows(filter=wanted), "read_and_all": [read, sum(f.num_row_groups for f in fragments)]}


told = {}
for name in lake.JSONL:
    told[name] = {"lossless": jsonl(name, lake.ROOT, LOCAL), "s3": jsonl(name, lake.BUCKET, S3)}
for name in lake.PARQUET:
    told[name] = {
        "lossless": parquet(name, lake.ROOT, LOCAL),
        "s3": parquet(name, lake.BUCKET, S3),
        "filters": filters(name),
    }
if lake.PARQUET:
    told["pages"] = skipped()
lake.tell(told)
