//! The paths of third-party tools for tests, and of our scripts that run them.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("a crate stands two folders below the root")
}

/// A folder of target/tools. A test executable is below the target folder, so its own path shows
/// where that is, whatever CARGO_TARGET_DIR or a configuration file says.
pub fn installed(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let folders = own.ancestors().map(|above| above.join("tools").join(name));
    // The file `installed` is written last: without it the installation was interrupted.
    folders.into_iter().find(|folder| folder.join("installed").is_file()).unwrap_or_else(|| {
        panic!("target/tools/{name} is missing: `cargo xtask test` installs it");
    })
}
