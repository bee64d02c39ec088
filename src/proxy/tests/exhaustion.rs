//! Running out of descriptors. The limit is the process's, so the front door runs in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};

use super::harness::*;

const CHILD: &str = "KUBEBYON_TEST_FRONT_DOOR_WITH_FEW_DESCRIPTORS";
const LIMIT: u64 = 40;

/// Does nothing unless the test below starts it.
#[tokio::test]
async fn with_few_descriptors() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    setrlimit(Resource::RLIMIT_NOFILE, LIMIT, LIMIT).unwrap();
    let door = start(options());
    door.route(&[]);
    println!("\nserving {}", door.address);
    let mut line = String::new();
    tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut line)).await.unwrap().unwrap();
    println!("\nrefusals {:?}", door.door.stats().refusals());
}

#[test]
fn out_of_descriptors_clients_are_turned_away_nothing_spins_and_service_resumes() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "proxy::tests::exhaustion::with_few_descriptors", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("serving ").map(str::to_owned)).expect("the child serves");
    let connect = || {
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    };
    let mut silent: Vec<TcpStream> = (0..LIMIT + 20).map(|_| connect()).collect();
    let turned_away = silent.last_mut().unwrap().read(&mut [0]);
    assert!(matches!(turned_away, Ok(0)), "the last one is closed rather than left hanging: {turned_away:?}");
    std::thread::sleep(Duration::from_millis(500));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let ticks: u64 = stat.rsplit(") ").next().unwrap().split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    assert!(ticks < 60, "the accept loop spins: {ticks} ticks of CPU");

    drop(silent);
    let mut client = connect();
    client.write_all(&hello("unknown.example")).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [0x15, 3, 1, 0, 2, 2, 0x70]);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let refusals = lines.find(|line| line.starts_with("refusals ")).unwrap();
    assert!(refusals.contains("out_of_descriptors"), "{refusals}");
    assert!(child.wait().unwrap().success());
}
