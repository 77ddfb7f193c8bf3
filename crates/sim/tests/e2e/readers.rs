//! `queen dev`, and DuckDB over the folder it writes.

use queen_sim::process::{Setup, free_port, tool};
use std::process::Command;
use std::time::{Duration, Instant};

const BODY: &str = r#"{"items":[
  {"queue":"orders","partition":"cust-1","payload":{"order":1,"status":"new","total":42.00}},
  {"queue":"orders","partition":"cust-2","payload":{"order":2,"status":"new","total":17.50}},
  {"queue":"orders","partition":"cust-1","payload":{"order":1,"status":"paid","total":42.00}}
]}"#;

#[tokio::test]
async fn duckdb_reads_the_three_messages_of_queen_dev() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("queen-dev");
    let mut setup = Setup::new(&dir);
    let arguments = [
        "dev",
        "--dir",
        &dir.display().to_string(),
        "--port",
        &setup.port.to_string(),
        "--s3-port",
        &free_port().to_string(),
        "--window-ms",
        "1000",
    ];
    setup.arguments = arguments.map(str::to_owned).to_vec();
    let setup = setup.without("QUEEN_RAFT_DIR").without("PORT").without("QUEEN_BIND_ADDR");
    let mut broker = setup.start().await.unwrap();
    let answer = broker.client().post("/api/v1/push", BODY).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text);
    let lake = dir.join("lake");
    let until = Instant::now() + Duration::from_secs(30);
    let glob = format!("{}/queen/tenant=*/queue=orders/dt=*/hour=*/*.jsonl.zst", lake.display());
    let script = "
import duckdb, glob, sys
if not glob.glob(sys.argv[1]): sys.exit(3)
rows = duckdb.sql(f\"\"\"select partition, \"offset\", payload.status, payload.total, queue
  from (select * from read_json_auto('{sys.argv[1]}', hive_partitioning=true)) order by 1, 2\"\"\").fetchall()
print(rows)
";
    let output = loop {
        let python = tool("python3").unwrap();
        let output = Command::new(python).args(["-c", script, &glob]).output().unwrap();
        if output.status.code() != Some(3) {
            break output;
        }
        assert!(Instant::now() < until, "nothing in {}\n{}", lake.display(), broker.tail());
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let want = "[('cust-1', 0, 'new', 42.0, 'orders'), ('cust-1', 1, 'paid', 42.0, 'orders'), \
                ('cust-2', 0, 'new', 17.5, 'orders')]";
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), want);
    let output = broker.output();
    assert!(output.contains(&setup.port.to_string()) && output.contains("push"), "{output}");
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}
