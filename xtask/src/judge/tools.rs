//! Installs the judges, and the verifiers of webhook signatures that tests call
//! (xtask/tools/receivers): a Python venv and a node_modules under target/tools, created once from
//! the pinned manifests in xtask/tools and again when a manifest changes. A tool that cannot be
//! installed is an error with advice, never a skipped judge.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::autobahn::Python;
use crate::process::{exists, root, run};

#[derive(Clone)]
pub struct Tools {
    home: PathBuf,
}

impl Tools {
    pub fn new(home: PathBuf) -> Self {
        Self { home }
    }

    /// Installs all judges except Autobahn.
    pub fn install(home: PathBuf) -> Result<Self> {
        let tools = Self::new(home);
        let python = ["requirements.txt"];
        tools.once("python", &python, install_python).context(
            "cannot install the Python tools (needs Python 3.10 or later with venv, \
             and the Python package registry)",
        )?;
        let node = ["package.json", "package-lock.json"];
        tools.once("node", &node, install_node).context(
            "cannot install the Node tools (needs Node 20 or later with npm, \
             and the npm registry)",
        )?;
        tools.install_clients()?;
        Ok(tools)
    }

    /// What builds and tests the packages under clients/, apart from the judges: the packages are
    /// tested with the libraries that they name and no others.
    pub fn install_clients(&self) -> Result<()> {
        self.install_client_libraries().context(
            "cannot install what tests the clients (needs Python 3.10, Node 20 and the registries)",
        )
    }

    fn install_client_libraries(&self) -> Result<()> {
        let python = ["clients/requirements.txt"];
        self.once("clients/python", &python, |folder, manifests| {
            install_python(folder, &manifests.join("clients"))
        })?;
        let node = ["clients/package.json", "clients/package-lock.json"];
        self.once("clients/node", &node, |folder, manifests| {
            install_node(folder, &manifests.join("clients"))
        })
    }

    /// Linters and generators of clients that read the OpenAPI document.
    pub fn install_contracts(&self) -> Result<()> {
        let python = ["contracts/requirements.txt"];
        self.once("contracts/python", &python, |folder, manifests| {
            install_python(folder, &manifests.join("contracts"))
        })?;
        let node = ["contracts/package.json", "contracts/package-lock.json"];
        self.once("contracts/node", &node, |folder, manifests| {
            install_node(folder, &manifests.join("contracts"))
        })
        .context("cannot install what reads the contract (needs Node 20 and the registries)")
    }

    /// The folder with `python` and `node` of the tools that read the contract.
    pub fn contracts(&self) -> PathBuf {
        self.home.join("contracts")
    }

    /// The folder with `python` and `node` of the clients.
    pub fn clients(&self) -> PathBuf {
        self.home.join("clients")
    }

    /// A program of the Python environment.
    pub fn python(&self, name: &str) -> PathBuf {
        self.home.join("python/bin").join(name)
    }

    /// A program of the Node environment.
    pub fn node(&self, name: &str) -> PathBuf {
        self.home.join("node/node_modules/.bin").join(name)
    }

    /// The folder with the `node_modules`.
    pub fn node_home(&self) -> PathBuf {
        self.home.join("node")
    }

    /// The judge of WebSockets and its interpreter, installed if necessary. Separate from the
    /// others: a machine without it can still run them.
    pub fn autobahn(&self) -> Result<Python> {
        let python = Python::find(&self.home.join("autobahn"))?;
        self.once("autobahn", &["autobahn.txt"], |_, manifests| {
            let mut pip = python.command();
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            pip.args(["--no-input", "--no-warn-script-location", "--no-deps"]);
            pip.args(["--user", "--ignore-installed", "--requirement"]);
            run(pip.arg(manifests.join("autobahn.txt")))
        })
        .context("cannot install the judge of WebSockets (needs the Python package registry)")?;
        Ok(python)
    }

    /// A file in the folder of the manifests.
    pub fn manifest(&self, name: &str) -> PathBuf {
        manifests().join(name)
    }

    /// Installs into `home/name` unless a stamp says that these exact manifests are installed. The
    /// stamp is written last, so an incomplete installation is repeated.
    fn once(
        &self,
        name: &str,
        files: &[&str],
        install: impl FnOnce(&Path, &Path) -> Result<()>,
    ) -> Result<()> {
        let folder = self.home.join(name);
        let wanted = stamp(&manifests(), files)?;
        let stamp_file = folder.join("installed");
        if fs::read_to_string(&stamp_file).is_ok_and(|found| found == wanted) {
            println!("    {name}: installed already");
            return Ok(());
        }
        if folder.exists() {
            fs::remove_dir_all(&folder).context("cannot clear an old installation")?;
        }
        fs::create_dir_all(&folder)?;
        println!("    {name}: installing (a minute, once)");
        install(&folder, &manifests())?;
        fs::write(stamp_file, wanted)?;
        Ok(())
    }
}

/// Programs that the tests call: name, an option that proves that it works, and its Debian package.
const PROGRAMS: [(&str, &str, &str); 11] = [
    ("curl", "--version", "curl"),
    ("openssl", "version", "openssl"),
    ("nghttp", "--version", "nghttp2-client"),
    ("chromium", "--version", "chromium"),
    ("firefox-esr", "--version", "firefox-esr"),
    ("testssl", "--version", "testssl.sh"),
    ("pebble", "-h", "pebble"),
    ("faketime", "--version", "faketime"),
    ("strace", "-V", "strace"),
    ("sqlite3", "-version", "sqlite3"),
    ("prlimit", "--version", "util-linux"),
];

/// Programs that `bench wire` compares with, in the same format.
const RIVALS: [(&str, &str, &str); 2] =
    [("nginx", "-v", "nginx-light"), ("h2load", "--version", "nghttp2-client")];

/// Programs that `bench proxy` compares with.
const PROXIES: [(&str, &str, &str); 2] =
    [("nginx", "-v", "nginx-light"), ("haproxy", "-v", "haproxy")];

/// The module that `bench live` compares with, and its path in Debian's package.
const BROADCASTER: (&str, &str) =
    ("/usr/lib/nginx/modules/ngx_nchan_module.so", "libnginx-mod-nchan");

/// The program that `bench api` counts instructions with.
const COUNTER: [(&str, &str, &str); 1] = [("valgrind", "--version", "valgrind")];

/// Installs missing programs that tests call.
pub fn install_programs() -> Result<()> {
    install_missing(&PROGRAMS)
}

/// The same for `bench wire`.
pub fn install_rivals() -> Result<()> {
    install_missing(&RIVALS)
}

/// The same for the tests on PostgreSQL. Its programs are not on the path.
pub fn install_postgres() -> Result<()> {
    apt(&["postgresql", "pgbouncer"])
}

/// The same for `bench proxy`.
pub fn install_proxies() -> Result<()> {
    install_missing(&PROXIES)
}

/// The same for `bench live`: nginx, and its broadcast module, which is not a program that could be
/// run for a check.
pub fn install_broadcaster() -> Result<()> {
    install_missing(&RIVALS[..1])?;
    if Path::new(BROADCASTER.0).exists() { Ok(()) } else { apt(&[BROADCASTER.1]) }
}

/// The same for `bench api`.
pub fn install_counter() -> Result<()> {
    install_missing(&COUNTER)
}

fn install_missing(programs: &[(&str, &str, &str)]) -> Result<()> {
    let missing = programs.iter().filter(|(program, probe, _)| !exists(program, probe));
    let packages: Vec<&str> = missing.map(|(_, _, package)| *package).collect();
    if packages.is_empty() { Ok(()) } else { apt(&packages) }
}

fn manifests() -> PathBuf {
    root().join("xtask/tools")
}

fn stamp(manifests: &Path, files: &[&str]) -> Result<String> {
    let mut stamp = String::new();
    for file in files {
        let path = manifests.join(file);
        let text = fs::read_to_string(&path);
        stamp.push_str(&text.with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(stamp)
}

fn install_python(folder: &Path, manifests: &Path) -> Result<()> {
    let venv = || Command::new("python3").args(["-m", "venv"]).arg(folder).status();
    // Debian packages venv separately, so the first attempt may fail although python3 exists.
    if !venv().is_ok_and(|status| status.success()) {
        apt(&["python3", "python3-venv"])?;
        let status = venv().context("cannot start python3")?;
        if !status.success() {
            bail!("python3 -m venv: {status}");
        }
    }
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    run(pip.arg("--requirement").arg(manifests.join("requirements.txt")))
}

fn install_node(folder: &Path, manifests: &Path) -> Result<()> {
    if !exists("npm", "--version") || !exists("node", "--version") {
        apt(&["nodejs", "npm"])?;
    }
    for file in ["package.json", "package-lock.json"] {
        fs::copy(manifests.join(file), folder.join(file))?;
    }
    let mut npm = Command::new("npm");
    // No package needs its install script, so none may run.
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder);
    run(&mut npm)
}

/// Installs distribution packages, for machines without Python or Node. `sudo -n` never prompts:
/// without rights it fails at once with an error.
fn apt(packages: &[&str]) -> Result<()> {
    let missing = packages.join(" ");
    if !exists("apt-get", "--version") {
        bail!("install {missing} first: they are missing and there is no apt-get here");
    }
    let root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            command.args(["-n", "apt-get"]);
        }
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut command)
    };
    println!("    installing the distribution's packages: {missing}");
    apt_get(&["update", "-q"]).with_context(|| format!("install {missing} by hand"))?;
    let install = [&["install", "-y", "-q", "--no-install-recommends"], packages].concat();
    apt_get(&install).with_context(|| format!("install {missing} by hand"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_pins_exact_versions() {
        for file in ["requirements.txt", "autobahn.txt", "clients/requirements.txt"] {
            let text = fs::read_to_string(manifests().join(file)).unwrap();
            for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                assert!(line.contains("=="), "not pinned: {line}");
            }
        }
        let text = fs::read_to_string(manifests().join("package.json")).unwrap();
        for package in ["spectral-cli", "asyncapi/parser", "standardwebhooks", "stripe", "svix"] {
            assert!(text.contains(package), "{package}");
        }
        let clients = fs::read_to_string(manifests().join("clients/package.json")).unwrap();
        for text in [text, clients] {
            assert!(!text.contains('^') && !text.contains('~'));
        }
    }

    #[test]
    fn a_changed_manifest_changes_the_stamp() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "one").unwrap();
        let before = stamp(folder.path(), &["a"]).unwrap();
        fs::write(folder.path().join("a"), "two").unwrap();
        assert_ne!(before, stamp(folder.path(), &["a"]).unwrap());
        assert!(stamp(folder.path(), &["absent"]).is_err());
    }
}
