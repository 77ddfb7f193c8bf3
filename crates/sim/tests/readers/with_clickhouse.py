"""ClickHouse (chdb) over the lakes."""

import json

import lake
from chdb.session import Session

clickhouse = Session()
clickhouse.query("SET use_hive_partitioning = 1, date_time_input_format = 'best_effort'")

FOLDERS = "tenant String, queue String, dt Date, hour UInt8"
JSONL = f"partition String, offset UInt64, transactionId String, ts DateTime64(6, 'UTC'), payload Nullable(String), payloadBase64 Nullable(String), {FOLDERS}"
PARQUET = f"partition String, offset UInt64, transaction_id String, ts DateTime64(6, 'UTC'), payload String, {FOLDERS}"
LINE = f"line String, {FOLDERS}"


def ask(sql):
    text = str(clickhouse.query(sql, "JSONCompactEachRow"))
    return [json.loads(line) for line in text.split("\n") if line]


def source(name, form=None, structure=None, s3=False):
    default = ("Parquet", PARQUET) if name.endswith("parquet") else ("JSONEachRow", JSONL)
    form, structure = form or default[0], (structure or default[1]).replace("'", "\\'")
    if s3:
        files = lake.glob(name, root=f"{lake.ENDPOINT}/{lake.BUCKET}")
        return f"s3('{files}', '{lake.ACCESS_KEY}', '{lake.SECRET_KEY}', '{form}', '{structure}')"
    return f"file('{lake.glob(name)}', '{form}', '{structure}')"


def ts(text):
    return text.replace(" ", "T") + "Z"


def typed(name, s3=False):
    tx, base64 = ("transaction_id", "NULL") if name in lake.PARQUET else ("transactionId", "payloadBase64")
    sql = f"SELECT decodeURLComponent(queue), partition, offset, {tx}, ts, dt, hour, payload, {base64} FROM {source(name, s3=s3)}"
    return [lake.row(*f[:4], ts(f[4]), *f[5:]) for f in ask(sql)]


def lossless(name, s3=False):
    if name in lake.PARQUET:
        return typed(name, s3)
    sql = f"""
        WITH position(line, ',"payload":') AS at, concat(substring(line, 1, at - 1), '}}') AS head
        SELECT decodeURLComponent(queue), JSONExtractString(head, 'partition'), JSONExtractUInt(head, 'offset'),
            JSONExtractString(head, 'transactionId'), JSONExtractString(head, 'ts'), dt, hour,
            substring(line, at + 11, length(line) - at - 11)
        FROM {source(name, 'LineAsString', LINE, s3)}"""
    return [lake.row(*f[:7], *lake.cut_base64(f[7])) for f in ask(sql)]




def filters(name):
    asked = lake.ASKED
    rows = lambda where: int(ask(f"SELECT count() FROM {source(name)} WHERE {where}")[0][0])
    queue = f"queue = '{asked['queue']}'"
    hour = f"{queue} AND dt = '{asked['dt']}' AND hour = {asked['hour']}"
    return {
        "partition": rows(f"{queue} AND partition = '{asked['partition']}'"),
        "ts": rows(
            f"{queue} AND ts BETWEEN parseDateTime64BestEffort('{asked['from']}', 6, 'UTC')"
            f" AND parseDateTime64BestEffort('{asked['to']}', 6, 'UTC')"
        ),
        "hour": rows(hour),
        "otherHour": rows(f"{queue} AND dt = '{asked['dt']}' AND hour = {asked['otherHour']}"),
        "files": int(ask(f"SELECT uniqExact(_path) FROM {source(name)} WHERE {hour}")[0][0]),
    }


def everywhere(name):
    ext = lake.extension(name)
    form, structure = ("Parquet", "partition String") if name in lake.PARQUET else ("LineAsString", "line String")
    globs = [f"{lake.ROOT}/{name}/**/*.{ext}", f"{lake.ROOT}/{name}/{lake.TENANT}/queue={lake.ASKED['queue']}/**"]
    return [int(ask(f"SELECT count() FROM file('{g}', '{form}', '{structure}')")[0][0]) for g in globs]


def skipped():
    """Row groups that a query for a partition read, and read or skipped, as ClickHouse counts them."""
    events = "SELECT sumIf(value, event = 'ParquetReadRowGroups'), sumIf(value, event LIKE 'Parquet%RowGroups') FROM system.events"
    count = lambda: [int(n) for n in ask(events)[0]]
    before = count()
    wanted = f"partition = '{lake.ASKED['pagesPartition']}'"
    rows, _ = ask(f"SELECT count(), sum(offset) FROM {source('pages.parquet')} WHERE {wanted}")[0]
    return {"rows": int(rows), "read_and_all": [now - then for now, then in zip(count(), before)]}


told = {}
for name in lake.JSONL + lake.PARQUET:
    told[name] = {
        "typed": typed(name),
        "lossless": lossless(name),
        "s3": lossless(name, s3=True),
        "filters": filters(name),
        "everywhere": everywhere(name),
    }
if lake.PARQUET:
    told["pages"] = skipped()
lake.tell(told)
