//! Starting programs and finding places: the repository's root, the target directory, cargo.
//! Knows nothing of what is being run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the repository: the folder above xtask's manifest.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Where cargo builds. This program was built there, as `<target>/<profile>/xtask`, so its own
/// path tells, whatever CARGO_TARGET_DIR or a configuration file says.
pub fn target_dir() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of xtask itself")?;
    let target = own.parent().and_then(Path::parent).context("xtask runs outside a target dir")?;
    Ok(target.to_path_buf())
}

/// The cargo that runs us, in the repository's root.
pub fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs a program to its end with our own output streams; anything but success is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = describe(command);
    println!("    $ {shown}");
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Whether the program can be started at all.
pub fn exists(program: &str, probe: &str) -> bool {
    Command::new(program)
        .arg(probe)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Program name and arguments; keys are masked, because CI logs are read by many.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let mut words = vec![name.to_string_lossy().into_owned()];
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        let shown = match argument.split_once("Bearer ") {
            Some((before, _)) => format!("{before}Bearer …"),
            None => argument.into_owned(),
        };
        words.push(if shown.contains(' ') { format!("'{shown}'") } else { shown });
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_masks_the_key() {
        let mut command = Command::new("tool");
        command.args(["run", "--header", "Authorization: Bearer sk_test_1"]);
        assert_eq!(describe(&command), "tool run --header 'Authorization: Bearer …'");
    }

    #[test]
    fn a_missing_program_is_told_and_not_a_panic() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("cannot start no-such-program-here"));
    }
}
