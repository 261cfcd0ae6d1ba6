//! The cost of one durable write on this disk: append 4 KiB and fdatasync, repeatedly. No commit
//! can be faster.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::histogram::Histogram;

const BLOCK: [u8; 4096] = [7; 4096];

/// Latencies of that many appends to a file in `dir`, which is removed afterwards.
pub fn append_and_sync(dir: &Path, count: usize) -> Result<Histogram> {
    let path = dir.join("sync.bin");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let mut file = file.with_context(|| format!("cannot write in {}", dir.display()))?;
    let mut latency = Histogram::default();
    for _ in 0..count {
        let began = Instant::now();
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        latency.record(began.elapsed());
    }
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_removed_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(append_and_sync(dir.path(), 3).unwrap().count(), 3);
        assert!(!dir.path().join("sync.bin").exists());
    }
}
