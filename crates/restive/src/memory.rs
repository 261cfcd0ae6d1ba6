//! The allocator, and the settings that keep the memory of an idle server small. Measured on a
//! fresh server, and on one that had held 1,500 bodies of 1 MB:
//!
//! | mimalloc 2 | idle | after the burst |
//! |---|---|---|
//! | its defaults | 49 MiB | 1,446 MiB |
//! | without huge pages | 27 MiB | 1,438 MiB |
//! | without huge pages, returning memory at once | 21 MiB | 23 MiB |
//!
//! The difference in CPU time of reads and lists is smaller than the noise.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// A request makes many small allocations. In profiles of lists and reads, the system allocator
/// took several per cent of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc reads its settings from the environment once, before `main`. A setting of the operator
/// is not overwritten.
const SETTINGS: [(&str, &str); 2] = [
    // Return freed memory to the system at once. By default a thread returns it when it next needs
    // pages, which after a burst may be never.
    ("MIMALLOC_PURGE_DELAY", "0"),
    // With transparent huge pages, touching one page makes its whole region of 2 MiB resident. The
    // feature `no_thp` covers systems that provide them on request, this setting those that always
    // do.
    ("MIMALLOC_ALLOW_THP", "0"),
];

/// Executes the program again, in the same process, with the settings of the allocator. If that
/// fails, the server still works but needs more memory.
pub fn configure() {
    let missing: Vec<_> =
        SETTINGS.into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    let (false, Ok(executable)) = (missing.is_empty(), env::current_exe()) else { return };
    if cfg!(target_os = "linux") && own_file().is_none_or(|file| file != executable) {
        return;
    }
    let mut arguments = env::args_os();
    let mut command = Command::new(executable);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // Returns only if it fails.
    let _ = command.args(arguments).envs(missing).exec();
}

/// The file that contains this function. If the program was started through the loader (`ld.so
/// restive serve`), the executable of the process is the loader, which would take `serve` for a
/// program.
fn own_file() -> Option<PathBuf> {
    file_at(&fs::read_to_string("/proc/self/maps").ok()?, configure as fn() as usize)
}

/// The file that is mapped at an address, from the lines of `/proc/self/maps`: range, permissions,
/// offset, device, inode and path, which may contain spaces.
fn file_at(maps: &str, address: usize) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (begin, end) = range.split_once('-')?;
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        if !(number(begin)?..number(end)?).contains(&address) {
            return None;
        }
        let path = rest.splitn(5, ' ').nth(4)?.trim_start();
        path.starts_with('/').then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapped_file_at_an_address_is_found() {
        let maps = "\
            7f00-7f10 r--p 00000000 fd:01 17                         /usr/lib/ld.so\n\
            7f10-7f20 r-xp 00001000 fd:01 17                         /opt/my tools/restive\n\
            7f20-7f30 rw-p 00000000 00:00 0                          [heap]\n\
            7f30-7f40 rw-p 00000000 00:00 0 \n";
        let at = |address| file_at(maps, address);
        assert_eq!(at(0x7f0f), Some("/usr/lib/ld.so".into()));
        assert_eq!(at(0x7f10), Some("/opt/my tools/restive".into()));
        for nowhere in [0x7eff, 0x7f20, 0x7f35, 0x7f40] {
            assert_eq!(at(nowhere), None, "{nowhere:x}");
        }
        if cfg!(target_os = "linux") {
            assert_eq!(own_file(), env::current_exe().ok());
        }
    }
}
