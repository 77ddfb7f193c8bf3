"""DuckDB over the lakes."""

import os

import duckdb
import duckdb_extension_httpfs
import lake

folder = os.path.dirname(duckdb_extension_httpfs.__file__)
db = duckdb.connect()
db.execute("set TimeZone = 'UTC'")
db.execute(f"load '{folder}/extensions/v{duckdb.__version__}/httpfs.duckdb_extension'")
db.execute(
    f"""create secret (type s3, key_id '{lake.ACCESS_KEY}', secret '{lake.SECRET_KEY}', region '{lake.REGION}',
    endpoint '{lake.ENDPOINT.removeprefix("http://")}', use_ssl false, url_style 'path')"""
)

HIVE = "hive_partitioning=true, hive_types={tenant: varchar, queue: varchar, dt: date, hour: integer}"


def source(name, root=lake.ROOT, queue="*"):
    files = lake.glob(name, queue, root)
    if name in lake.PARQUET:
        return f"read_parquet('{files}', {HIVE})"
    return f"""read_json('{files}', format='newline_delimited', maximum_object_size=134217728, {HIVE},
        columns={{"partition": 'varchar', "offset": 'ubigint', "transactionId": 'varchar', ts: 'timestamptz',
            payload: 'json', "payloadBase64": 'varchar'}})"""


def lines(name, root=lake.ROOT):
    return f"""read_csv('{lake.glob(name, root=root)}', columns={{line: 'varchar'}}, auto_detect=false, header=false,
        delim='\\x01', quote='', escape='', max_line_size=134217728, {HIVE})"""


def typed(name, root=lake.ROOT):
    tx, base64 = ("transaction_id", "null") if name in lake.PARQUET else ('"transactionId"', '"payloadBase64"')
    sql = f'select queue, "partition", "offset", {tx}, ts, dt, hour, payload, {base64} from {source(name, root)}'
    return [lake.row(*found) for found in db.sql(sql).fetchall()]


def lossless(name, root=lake.ROOT):
    if name in lake.PARQUET:
        return typed(name, root)
    sql = f"""
        with cut as (
            select queue, dt, hour, strpos(line, ',"payload":') as mark,
                left(line, mark - 1) || '}}' as head, substr(line, mark + 11, length(line) - mark - 11) as payload
            from {lines(name, root)})
        select queue, head->>'partition', (head->>'offset')::ubigint, head->>'transactionId',
            (head->>'ts')::timestamptz, dt, hour, payload
        from cut"""
    return [lake.row(*found[:7], *lake.cut_base64(found[7])) for found in db.sql(sql).fetchall()]


def files_scanned(sql):
    """`Total Files Read` of the plan."""
    plan = db.sql(f"explain analyze {sql}").fetchall()[0][1]
    after = plan.split("Total Files Read:")
    return int(after[1].split()[0]) if len(after) > 1 else 0


def filters(name):
    asked = lake.ASKED
    rows = lambda where: db.sql(f"select count(*) from {source(name)} where {where}").fetchone()[0]
    queue = f"queue = '{asked['queue']}'"
    hour = f"{queue} and dt = '{asked['dt']}' and hour = {asked['hour']}"
    return {
        "partition": rows(f"{queue} and \"partition\" = '{asked['partition']}'"),
        "ts": rows(f"{queue} and ts between '{asked['from']}' and '{asked['to']}'"),
        "hour": rows(hour),
        "otherHour": rows(f"{queue} and dt = '{asked['dt']}' and hour = {asked['otherHour']}"),
        "files": files_scanned(f"select sum(\"offset\") from {source(name)} where {hour}"),
    }


def everywhere(name):
    ext = lake.extension(name)
    read = "read_parquet" if name in lake.PARQUET else "read_ndjson_objects"
    size = "" if name in lake.PARQUET else ", maximum_object_size=134217728"
    globs = [f"{lake.ROOT}/{name}/**/*.{ext}", f"{lake.ROOT}/{name}/{lake.TENANT}/queue={lake.ASKED['queue']}/**"]
    return [db.sql(f"select count(*) from {read}('{g}'{size})").fetchone()[0] for g in globs]


def skipped():
    """Row groups that a filter on the partition leaves to read, and all, by the statistics that DuckDB uses."""
    files, wanted = lake.glob("pages.parquet"), lake.ASKED["pagesPartition"]
    groups = f"""select count(*) filter ('{wanted}' between stats_min_value and stats_max_value), count(*)
        from parquet_metadata('{files}') where path_in_schema = 'partition'"""
    rows = f"select count(*) from read_parquet('{files}') where \"partition\" = '{wanted}'"
    return {"rows": db.sql(rows).fetchone()[0], "read_and_all": list(db.sql(groups).fetchone())}


told = {}
for name in lake.JSONL + lake.PARQUET:
    told[name] = {
        "typed": typed(name),
        "lossless": lossless(name),
        "s3": lossless(name, f"s3://{lake.BUCKET}"),
        "filters": filters(name),
        "everywhere": everywhere(name),
    }
if lake.PARQUET:
    told["pages"] = skipped()
lake.tell(told)
