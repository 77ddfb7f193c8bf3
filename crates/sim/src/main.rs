//! `queen-sim`: runs the sink, a simulated cluster, or one of real processes, under seeded faults and says
//! which seed breaks it.
//!
//! Owns: the command line. Leaves to others: the runs (`queen_sim::simulation`, `queen_sim::cluster`,
//! `queen_sim::faults`).

use clap::{Parser, Subcommand};
use queen_sim::simulation::{Mutation, Outcome, run, run_seeds};
use queen_sim::{cluster, faults};
use std::io::{Write as _, stdout};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Runs the sink's loop against simulated broker and bucket under seeded faults.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// Run this seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds FROM..TO (TO is not run).
    #[arg(long, value_parser = range, default_value = "0..20000")]
    seeds: Range<u64>,
    /// Break the protocol: no-lease-check, intent-not-pinned, pointer-before-manifest,
    /// start-in-memory, redo-with-todays-settings.
    #[arg(long, value_parser = mutation)]
    mutation: Option<Mutation>,
    /// Print everything that happens (with --seed).
    #[arg(long)]
    trace: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// What else is run.
#[derive(Subcommand)]
enum Other {
    /// Runs a simulated cluster: the real log and rules over simulated network, disks and clocks.
    Cluster {
        /// Run this seed.
        #[arg(long, conflicts_with = "seeds")]
        seed: Option<u64>,
        /// Run the seeds FROM..TO (TO is not run).
        #[arg(long, value_parser = range, default_value = "0..1000")]
        seeds: Range<u64>,
        /// Break the protocol: vote-not-synced, log-not-synced, answer-before-majority,
        /// read-without-barrier, own-clock, any-term.
        #[arg(long, value_parser = cluster_mutation)]
        mutation: Option<cluster::Mutation>,
        /// Print everything that happens (with --seed).
        #[arg(long)]
        trace: bool,
        /// Print what came of it as JSON (with --seed).
        #[arg(long)]
        json: bool,
        /// Processes at a time.
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
    /// Runs a cluster of real processes under faults, with clients and checkers.
    Faults {
        /// Run this seed.
        #[arg(long, conflicts_with = "seeds")]
        seed: Option<u64>,
        /// Run the seeds FROM..TO (TO is not run).
        #[arg(long, value_parser = range, default_value = "0..10")]
        seeds: Range<u64>,
        /// Seconds of faults in each run.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Each kind of fault once, however long that takes.
        #[arg(long, conflicts_with = "seconds")]
        once: bool,
        /// Only this kind of fault, such as KillLeader; may be given again.
        #[arg(long, value_parser = kind)]
        only: Vec<faults::Kind>,
        /// Where histories are kept.
        #[arg(long, default_value = "target/faults")]
        folder: PathBuf,
        /// A setting of all nodes, NAME=VALUE; may be given again.
        #[arg(long, value_parser = setting)]
        set: Vec<(String, String)>,
    },
    /// Looks for faults that were planted in the broker; fails unless each is found. Takes a broker built
    /// with `--features queen/planted-bugs`, named by QUEEN_TEST_BINARY.
    Planted {
        /// Only this one: answer-before-majority, read-without-barrier, lease-on-wall-clock,
        /// commit-without-fence.
        #[arg(long, value_parser = planted)]
        bug: Option<&'static faults::Planted>,
        /// Run the seeds FROM..TO (TO is not run), until one finds it.
        #[arg(long, value_parser = range, default_value = "0..10")]
        seeds: Range<u64>,
        /// Seconds of faults in each run.
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// Where histories are kept.
        #[arg(long, default_value = "target/faults")]
        folder: PathBuf,
    },
    /// Kills the leader under load again and again and measures the time to the next answer.
    Failover {
        /// So often.
        #[arg(long, default_value_t = 50)]
        kills: usize,
        /// Where the history is kept.
        #[arg(long, default_value = "target/faults")]
        folder: PathBuf,
    },
    /// Restarts the three nodes of a cluster one after the other under load, and measures the
    /// slowest push; fails when its median over the runs is above a second.
    Rolling {
        /// So often.
        #[arg(long, default_value_t = 5)]
        runs: usize,
    },
}

/// Longest push that a rolling restart may cost, at the median of the runs.
const ROLLING_MAX: Duration = Duration::from_secs(1);

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn kind(name: &str) -> Result<faults::Kind, String> {
    faults::Kind::from_name(name).ok_or_else(|| {
        let names = faults::Kind::ALL.map(|kind| format!("{kind:?}")).join(", ");
        format!("{name:?} is no kind of fault, give one of {names}")
    })
}

fn planted(name: &str) -> Result<&'static faults::Planted, String> {
    faults::Planted::from_name(name).ok_or_else(|| {
        let names = faults::PLANTED.each_ref().map(|planted| planted.name).join(", ");
        format!("{name:?} is no planted fault, give one of {names}")
    })
}

/// Looks for planted faults; whether each was found.
async fn look_for(
    bugs: &[&faults::Planted],
    seeds: Range<u64>,
    seconds: u64,
    folder: &Path,
) -> anyhow::Result<bool> {
    let (mut table, mut well) = (String::new(), true);
    for bug in bugs {
        let length = Duration::from_secs(seconds);
        let found = faults::find_planted(bug, seeds.clone(), length, folder).await?;
        well &= found.is_some();
        let seen = match &found {
            Some(report) => format!("seed {}: {}", report.seed, report.wrong.join("; ")),
            None => format!("not found by seeds {seeds:?}: was the broker built with it?"),
        };
        let seen: String = seen.chars().take(200).collect();
        table.push_str(&format!("{:<24} {seen}\n", bug.name));
    }
    write!(stdout(), "{table}")?;
    Ok(well)
}

/// Runs processes; whether all was well.
async fn real(other: Other) -> anyhow::Result<bool> {
    match other {
        Other::Cluster { .. } => {}
        Other::Faults { seed, seeds, seconds, once, only, folder, set } => {
            let length = (!once).then(|| Duration::from_secs(seconds));
            let mut summary = faults::Summary::default();
            let mut well = true;
            for seed in seed.map_or(seeds, |seed| seed..seed + 1) {
                let (folder, variables, only) = (folder.clone(), set.clone(), only.clone());
                let options = faults::Options { seed, length, folder, variables, only };
                let report = faults::run(&options).await?;
                write!(stdout(), "{}", report.text())?;
                summary.add(&report);
                well = report.wrong.is_empty();
                if !well {
                    break;
                }
            }
            write!(stdout(), "{}", summary.text())?;
            return Ok(well);
        }
        Other::Planted { bug, seeds, seconds, folder } => {
            let bugs = bug.map_or_else(|| faults::PLANTED.iter().collect(), |bug| vec![bug]);
            return look_for(&bugs, seeds, seconds, &folder).await;
        }
        Other::Failover { kills, folder } => {
            let times = faults::failover(kills, &folder).await?;
            let median = times.get(times.len() / 2).copied().unwrap_or_default();
            let worst = times.last().copied().unwrap_or_default();
            let kills = times.len();
            writeln!(stdout(), "{kills} kills: median {median:.0?}, worst {worst:.0?}")?;
        }
        Other::Rolling { runs } => {
            let mut slowest = Vec::new();
            for number in 1..=runs.max(1) {
                let longest = faults::rolling().await?;
                println!("run {number}: slowest push {longest:.0?}");
                slowest.push(longest);
            }
            slowest.sort();
            let (median, worst) = (slowest[slowest.len() / 2], slowest[slowest.len() - 1]);
            println!(
                "{} runs: slowest push: median {median:.0?}, worst {worst:.0?}",
                slowest.len()
            );
            return Ok(median <= ROLLING_MAX);
        }
    }
    Ok(true)
}

/// Runs one seed in this process, or each of many in one of its own; whether all was well.
fn simulated(
    seed: Option<u64>,
    seeds: Range<u64>,
    mutation: Option<cluster::Mutation>,
    (trace, json): (bool, bool),
    threads: usize,
) -> anyhow::Result<bool> {
    if let Some(seed) = seed {
        let outcome = cluster::run(seed, mutation, trace);
        match json {
            true => println!("{}", serde_json::to_string(&outcome)?),
            false => report_cluster(&outcome, mutation),
        }
        return Ok(outcome.wrong.is_empty());
    }
    let begun = Instant::now();
    let program = std::env::current_exe()?;
    let (failed, runs) = cluster::apart::run_seeds(&program, seeds, mutation, threads);
    println!("{runs} seeds in {:.1} s", begun.elapsed().as_secs_f64());
    if let Some(outcome) = &failed {
        report_cluster(outcome, mutation);
    }
    Ok(failed.is_none())
}

/// The same until somebody interrupts it: what was begun is dropped then, and takes away its
/// processes, namespaces and files.
async fn real_or_interrupted(other: Other) -> anyhow::Result<bool> {
    let mut ends = signal(SignalKind::terminate())?;
    tokio::select! {
        done = real(other) => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            anyhow::bail!("interrupted")
        }
        _ = ends.recv() => anyhow::bail!("terminated"),
    }
}

fn code(done: anyhow::Result<bool>) -> ExitCode {
    match done {
        Ok(well) => ExitCode::from(u8::from(!well)),
        Err(why) => {
            eprintln!("{why:#}");
            ExitCode::FAILURE
        }
    }
}

fn other_code(other: Other) -> ExitCode {
    if let Other::Cluster { seed, seeds, mutation, trace, json, threads } = other {
        end_with_the_reader();
        return code(simulated(seed, seeds, mutation, (trace, json), threads));
    }
    let runtime = tokio::runtime::Runtime::new();
    let done = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(real_or_interrupted(other)));
    code(done)
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let bad = || format!("{text:?} is no range, give FROM..TO, for example 0..20000");
    let (from, to) = text.split_once("..").ok_or_else(bad)?;
    Ok(from.parse().map_err(|_| bad())?..to.parse().map_err(|_| bad())?)
}

fn mutation(name: &str) -> Result<Mutation, String> {
    Mutation::from_name(name).ok_or_else(|| {
        let names = Mutation::ALL.map(Mutation::name).join(", ");
        format!("{name:?} is no mutation, give one of {names}")
    })
}

fn cluster_mutation(name: &str) -> Result<cluster::Mutation, String> {
    cluster::Mutation::from_name(name).ok_or_else(|| {
        let names = cluster::Mutation::ALL.map(cluster::Mutation::name).join(", ");
        format!("{name:?} is no mutation, give one of {names}")
    })
}

fn report_cluster(outcome: &cluster::Outcome, mutation: Option<cluster::Mutation>) {
    let cluster::Outcome { seed, hash, wrong, entries, leaders, snapshots, .. } = outcome;
    let (records, calls) = (outcome.records, outcome.calls);
    let recovery = outcome.recovery as f64 / 1e6;
    println!(
        "seed {seed}: trace {hash:016x}, {entries} entries, {leaders} leaders, {snapshots} snapshots, \
         {records} records, {calls} KV calls, whole again after {recovery:.1} s"
    );
    for wrong in wrong {
        println!("  {wrong}");
    }
    if !wrong.is_empty() {
        let mutation = mutation.map_or(String::new(), |m| format!(" --mutation {}", m.name()));
        println!("again: cargo run -p queen-sim -- cluster --seed {seed}{mutation} --trace");
    }
}

/// From here on a reader that has seen enough, such as `head`, ends the process, as it does with any
/// filter. Not for runs of real processes: they have something to clear away.
fn end_with_the_reader() {
    // SAFETY: no handler is installed; the default action of the system is.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn report(outcome: &Outcome, mutation: Option<Mutation>) {
    let Outcome { seed, hash, wrong, requests, windows, records, passed } = outcome;
    println!(
        "seed {seed}: trace {hash:016x}, {requests} requests, {windows} windows, {records} records, \
         {passed} times passed over a pin"
    );
    for wrong in wrong {
        println!("  {wrong}");
    }
    if !wrong.is_empty() {
        let mutation = mutation.map_or(String::new(), |m| format!(" --mutation {}", m.name()));
        println!("again: cargo run -p queen-sim -- --seed {seed}{mutation} --trace");
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(other) = arguments.other {
        return other_code(other);
    }
    end_with_the_reader();
    if let Some(seed) = arguments.seed {
        let outcome = run(seed, arguments.mutation, arguments.trace);
        report(&outcome, arguments.mutation);
        return ExitCode::from(u8::from(!outcome.wrong.is_empty()));
    }
    let begun = Instant::now();
    let (failed, runs) = run_seeds(arguments.seeds, arguments.mutation, arguments.threads);
    println!("{runs} seeds in {:.1} s", begun.elapsed().as_secs_f64());
    match failed {
        None => ExitCode::SUCCESS,
        Some(outcome) => {
            report(&outcome, arguments.mutation);
            ExitCode::FAILURE
        }
    }
}
