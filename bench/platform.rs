//! What `make bench` runs: the shipped binary beside what it is measured against, in one run, as ratios.
//!
//! Writes `bench/results.json`. Takes the medians of alternating runs; asserts nothing: goals stand beside the figures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::pedantic, missing_docs, dead_code, clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/e2e/harness.rs"]
mod harness;

mod bare;
mod measure;
mod reads;
mod tunnel;

use std::time::{Duration, Instant};

use harness::{Platform, binary};
use measure::{cpu_seconds, median, pss_kib};
use serde_json::{Value, json};

const ROUNDS: usize = 5;

fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(fleet) = std::env::var_os(tunnel::FLEET) {
        return tunnel::be_fleet(std::path::Path::new(&fleet));
    }
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/results.json");
    // With names, only these are measured anew.
    let known = std::fs::read(path).ok().filter(|_| !only.is_empty()).and_then(|text| serde_json::from_slice(&text).ok());
    let mut results: serde_json::Map<String, Value> = known.unwrap_or_default();
    results.insert("machine".into(), machine());
    for (name, measurement) in [
        ("cluster_ready", cluster_ready as fn() -> Value),
        ("five_at_once", five_at_once),
        ("daemon", daemon),
        ("cluster_at_rest", cluster_at_rest),
        ("start", start),
        ("binary", size),
        ("reads", reads::reads),
        ("tunnel_stream", tunnel::stream),
        ("tunnels", tunnel::tunnels),
    ] {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        eprintln!("bench: {name} …");
        let value = measurement();
        println!("{name}: {value}");
        results.insert(name.into(), value);
        // After each, so that what was measured stays when a later one fails.
        std::fs::write(path, serde_json::to_string_pretty(&results).unwrap() + "\n").unwrap();
    }
    println!("written to bench/results.json");
}

fn machine() -> Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().next().and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    json!({ "cores": std::thread::available_parallelism().map_or(0, usize::from), "memory_mib": total / 1024, "kernel": kernel.trim() })
}

/// From the request to `/readyz` of the API server through the front door, beside etcd and kube-apiserver started by hand.
fn cluster_ready() -> Value {
    let platform = Platform::start();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    // One of each that is not counted: files come into the page cache.
    bare::ready_after();
    ready_after(&platform, "warm");
    for round in 0..ROUNDS {
        bare.push(bare::ready_after().as_secs_f64());
        ours.push(ready_after(&platform, &format!("c{round}")).as_secs_f64());
    }
    let (ours, bare) = (median(&mut ours), median(&mut bare));
    json!({ "seconds": ours, "bare_seconds": bare, "ratio": ours / bare, "goal": "ratio at most 1.5", "rounds": ROUNDS })
}

fn ready_after(platform: &Platform, name: &str) -> Duration {
    let started = Instant::now();
    let cluster = platform.json(&["cluster", "create", name]);
    let url = format!("https://127.0.0.1:{}/readyz", cluster["node_port"]);
    measure::until_ok(&url);
    let took = started.elapsed();
    platform.ok(&["cluster", "delete", name, "--wait"]);
    took
}

/// Five clusters asked for at once, until the last one answers.
fn five_at_once() -> Value {
    let platform = Platform::start();
    let started = Instant::now();
    let clusters: Vec<Value> = (0..5).map(|i| platform.json(&["cluster", "create", &format!("c{i}")])).collect();
    for cluster in &clusters {
        measure::until_ok(&format!("https://127.0.0.1:{}/readyz", cluster["node_port"]));
    }
    json!({ "seconds": started.elapsed().as_secs_f64() })
}

/// The daemon's own memory when idle, with 0, 1 and 5 clusters.
fn daemon() -> Value {
    let platform = Platform::start();
    let mut measured = serde_json::Map::new();
    let mut created = 0;
    for clusters in [0, 1, 5] {
        while created < clusters {
            platform.create(&format!("c{created}"), &[]);
            created += 1;
        }
        std::thread::sleep(Duration::from_secs(20));
        measured.insert(format!("mib_with_{clusters}"), json!(pss_kib(platform.pid()) as f64 / 1024.0));
    }
    let (none, five) = (measured["mib_with_0"].as_f64().unwrap(), measured["mib_with_5"].as_f64().unwrap());
    measured.insert("mib_each_cluster".into(), json!((five - none) / 5.0));
    let before = cpu_seconds(platform.pid());
    std::thread::sleep(Duration::from_secs(30));
    measured.insert("idle_cpu_ms_each_second_with_5".into(), json!((cpu_seconds(platform.pid()) - before) / 30.0 * 1000.0));
    measured.insert("goal".into(), json!("30 MB with none, at most 2 MB for each cluster"));
    Value::Object(measured)
}

/// A whole cluster's proportional set size and its CPU when idle, with two others beside it as a host would have.
fn cluster_at_rest() -> Value {
    let platform = Platform::start();
    for name in ["one", "two", "three"] {
        platform.create(name, &[]);
    }
    std::thread::sleep(Duration::from_secs(60));
    let children = platform.children();
    let before: f64 = children.iter().map(|(_, pid)| cpu_seconds(*pid)).sum();
    std::thread::sleep(Duration::from_secs(60));
    let after: f64 = children.iter().map(|(_, pid)| cpu_seconds(*pid)).sum();
    let mut parts = std::collections::BTreeMap::<String, f64>::new();
    for (name, pid) in &children {
        *parts.entry(name.clone()).or_default() += pss_kib(*pid) as f64 / 1024.0 / 3.0;
    }
    json!({
        "pss_mib": parts.values().sum::<f64>(),
        "pss_mib_by_program": parts,
        "idle_cpu_ms_each_second": (after - before) / 60.0 / 3.0 * 1000.0,
        "goal": "260 MB",
    })
}

/// From exec to a `/readyz` that says yes, on a data folder that exists.
fn start() -> Value {
    let mut platform = Platform::start();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        platform.stop();
        let started = Instant::now();
        platform.boot();
        measure::until_ok(&format!("https://127.0.0.1:{}/readyz", platform.port));
        took.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    json!({ "milliseconds": median(&mut took), "goal": "under 200 ms" })
}

fn size() -> Value {
    json!({ "mib": std::fs::metadata(binary()).unwrap().len() as f64 / 1024.0 / 1024.0 })
}
