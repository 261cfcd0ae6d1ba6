//! Figures of the process for the metrics page, under the names of Prometheus' own clients. Read
//! from `/proc`; figures that cannot be read are omitted.

use std::fs;

/// Clock ticks per second in `/proc`: the same on every Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;
/// Positions in `/proc/self/stat` after the name of the program, which may contain any character.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

/// Appends the current figures.
pub fn render(text: &mut String) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let system = fs::read_to_string("/proc/stat").unwrap_or_default();
    // Without the descriptor that is open for this count.
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1));
    let cpu = ticks(&stat, USER_TICKS).zip(ticks(&stat, SYSTEM_TICKS));
    let started = boot_time(&system).zip(ticks(&stat, START_TICKS));
    let figures: [(&str, &str, &str, Option<f64>); 6] = [
        (
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            cpu.map(|(user, system)| (user + system) / TICKS_PER_SECOND),
        ),
        (
            "process_open_fds",
            "gauge",
            "Number of open file descriptors.",
            open.map(|count| count as f64),
        ),
        (
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            max_files(&limits),
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Virtual memory size in bytes.",
            kibibytes(&status, "VmSize:"),
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size in bytes.",
            kibibytes(&status, "VmRSS:"),
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            started.map(|(boot, ticks)| boot + ticks / TICKS_PER_SECOND),
        ),
    ];
    for (name, kind, help, value) in figures {
        let Some(value) = value else { continue };
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
    }
}

fn ticks(stat: &str, place: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(place)?.parse().ok()
}

/// The boot time of the machine, in seconds.
fn boot_time(system: &str) -> Option<f64> {
    system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The soft limit; `None` if it is `unlimited`.
fn max_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed_and_missing_ones_omitted() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 5 0 12345 1000 20";
        assert_eq!(ticks(stat, USER_TICKS), Some(250.0));
        assert_eq!(ticks(stat, SYSTEM_TICKS), Some(50.0));
        assert_eq!(ticks(stat, START_TICKS), Some(12345.0));
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1.7e9));
        let limits = "Max cpu time   unlimited unlimited\nMax open files   1024   4096   files\n";
        assert_eq!(max_files(limits), Some(1024.0));
        assert_eq!(kibibytes("VmSize:\t  20 kB\nVmRSS:\t   8 kB\n", "VmRSS:"), Some(8192.0));
        for absent in [ticks("", 0), boot_time(""), max_files(""), kibibytes("", "VmRSS:")] {
            assert_eq!(absent, None);
        }
    }
}
