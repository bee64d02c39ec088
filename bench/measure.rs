//! What `/proc` and a connection tell.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Proportional set size of a process.
pub fn pss_kib(pid: i32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    rollup.lines().find_map(|l| l.strip_prefix("Pss:")).and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap()
}

/// CPU time that a process has used, in user space and in the kernel.
pub fn cpu_seconds(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Fields 14 and 15 of proc_pid_stat(5), in ticks of 1/100 s.
    let ticks = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// The median.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Asks until the answer is 200.
pub fn until_ok(url: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let output = Command::new("curl")
            .args(["-sk", "-m", "2", "-o", "/dev/null", "-w", "%{http_code}", url])
            .stderr(Stdio::null())
            .output()
            .unwrap();
        if output.stdout == b"200" {
            return;
        }
        assert!(Instant::now() < deadline, "{url} is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
}
