"""What the readers' scripts share: where the lakes are, and how they tell the test what they read.

Called as: script ROOT ENDPOINT ASKED. ROOT holds a copy of the bucket, one folder a lake, named by the
end of its files' names; ENDPOINT is the S3 server with the bucket itself; ASKED is JSON: what to filter for.
A script prints one line of JSON.
"""

import datetime
import hashlib
import json
import sys

ROOT, ENDPOINT, ASKED = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
BUCKET, REGION, ACCESS_KEY, SECRET_KEY = "lake", "us-east-1", "queen", "queen-secret-key"
JSONL = ["jsonl.zst", "jsonl.gz", "jsonl"]
PARQUET = ASKED["parquet"]
TENANT = "tenant=00000000-0000-0000-0000-000000000001"


def extension(lake):
    return "parquet" if lake.endswith("parquet") else lake


def glob(lake, queue="*", root=ROOT):
    """Every data file of a lake, as the guide writes it."""
    return f"{root}/{lake}/tenant=*/queue={queue}/dt=*/hour=*/*.{extension(lake)}"


def short(text):
    """Long texts are told by their hash."""
    if text is None or len(text) < 4096:
        return text
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def row(queue, partition, offset, transaction_id, ts, dt, hour, payload, base64=None):
    if isinstance(ts, datetime.datetime):
        if ts.tzinfo is not None:
            ts = ts.astimezone(datetime.timezone.utc)
        ts = ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return [queue, partition, int(offset), transaction_id, ts, str(dt), int(hour), short(payload), short(base64)]


def cut_base64(payload):
    """Parts what follows `"payload":` in a line: the payload's own text, or null and its base64."""
    mark = 'null,"payloadBase64":"'
    if payload.startswith(mark):
        return None, payload[len(mark):-1]
    return payload, None


def tell(told):
    print(json.dumps(told))
