//! Starts programs and finds folders: the repository's root, the target folder, cargo. Knows
//! nothing about the programs.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Maximum words of a command in messages: a list of test names may have hundreds.
const SHOWN_WORDS: usize = 40;

/// The root of the repository: the folder above xtask's manifest.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// The target folder of cargo. This program was built there, as `<target>/<profile>/xtask`, so its
/// own path shows it, whatever CARGO_TARGET_DIR or a configuration file says.
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

/// Runs a program to its end with our own output streams; any failure is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = describe(command);
    println!("    $ {shown}");
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// The same for programs that run at the same time as others: the output goes to a file, and is
/// printed at the end.
pub fn run_apart(log: &Path, command: &mut Command) -> Result<()> {
    let shown = describe(command);
    println!("    $ {shown}");
    let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    let command = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    print!("{}", String::from_utf8_lossy(&std::fs::read(log)?));
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// The same with a deadline, after which the program and all its children are killed. A test that
/// hangs then fails the run instead of blocking it forever.
pub fn run_within(limit: Duration, command: &mut Command) -> Result<()> {
    let shown = describe(command);
    println!("    $ {shown}");
    let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
    let began = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("{shown}: {status}"),
            None if began.elapsed() > limit => {
                kill_with_descendants(child.id())?;
                child.wait()?;
                bail!("{shown}: killed, because it did not end within {} s", limit.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn kill_with_descendants(ancestor: u32) -> Result<()> {
    let mut doomed = vec![ancestor];
    let processes = processes()?;
    let mut looked_at = 0;
    while let Some(parent) = doomed.get(looked_at).copied() {
        doomed
            .extend(processes.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        looked_at += 1;
    }
    let words: Vec<String> = doomed.iter().map(u32::to_string).collect();
    // The shell's built-in `kill`. It fails harmlessly for processes that have ended.
    let line = format!("kill -KILL {}", words.join(" "));
    Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status().context("sh")?;
    Ok(())
}

/// Every process of this machine, with its parent.
fn processes() -> Result<Vec<(u32, u32)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
        // Entries that are not processes, or that have ended since, have no such file.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may contain any character; after it come the state and the
        // parent.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        let process = entry.file_name().to_string_lossy().parse();
        if let (Ok(process), Some(Ok(parent))) = (process, parent.map(str::parse)) {
            found.push((process, parent));
        }
    }
    Ok(found)
}

/// Runs a program to its end and returns its stdout; any failure is an error.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = describe(command);
    println!("    $ {shown}");
    let command = command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown}: not UTF-8"))
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

/// Program name and arguments; keys are masked, because many people read CI logs.
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
    if words.len() > SHOWN_WORDS {
        let left_out = words.len() - SHOWN_WORDS;
        words.truncate(SHOWN_WORDS);
        words.push(format!("… ({left_out} more)"));
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
    fn a_program_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        let mut command = Command::new("sh");
        let error = run_within(Duration::from_millis(300), command.args(["-c", &script]));
        assert!(error.unwrap_err().to_string().contains("did not end within"));
        let pid = std::fs::read_to_string(pid_file).unwrap().trim().parse::<u32>().unwrap();
        let began = Instant::now();
        // A killed process may remain as a zombie until its new parent reaps it.
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        while runs() {
            assert!(began.elapsed() < Duration::from_secs(10), "{pid} still runs");
            std::thread::sleep(Duration::from_millis(5)); // waits for: the end of the process
        }
        assert!(run_within(Duration::from_secs(60), &mut Command::new("true")).is_ok());
        assert!(run_within(Duration::from_secs(60), &mut Command::new("false")).is_err());
    }

    #[test]
    fn a_missing_program_is_an_error_and_not_a_panic() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("cannot start no-such-program-here"));
    }
}
