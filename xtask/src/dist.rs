//! `cargo xtask dist`: what is released. For each architecture an archive and a Debian package, and
//! the context of a container image, all in target/dist. What runs on this machine is tried:
//! unpacked or installed into a folder, started, asked for its health and stopped. `--debug`
//! packages the debug build instead, to try the packaging without a long build.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::judge::Server;
use crate::process::{cargo, root, run, target_dir};
use crate::summary::Summary;

/// Architectures: as the compiler, the archives and Debian call them.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "amd64"), ("aarch64", "arm64")];
/// C libraries, the preferred one first. Both are linked statically.
const LIBRARIES: [&str; 2] = ["musl", "gnu"];
/// Where Debian and most others keep the certificate authorities.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What is packaged.
struct Build {
    architecture: &'static str,
    debian: &'static str,
    executable: PathBuf,
}

impl Build {
    /// Name of the archive and of its folder.
    fn name(&self) -> String {
        format!("restive-{}-{}-linux", version(), self.architecture)
    }

    fn runs_here(&self) -> bool {
        self.architecture == std::env::consts::ARCH
    }
}

pub fn dist(debug: bool) -> Result<()> {
    let mut summary = Summary::default();
    steps(&mut summary, debug);
    summary.finish()
}

/// The steps, part of `test` for the debug build.
pub fn steps(summary: &mut Summary, debug: bool) {
    let Some(dist) = summary.step("clear target/dist", clear) else { return };
    let builds = match debug {
        true => summary.step("build for debugging", build_debug).into_iter().collect(),
        false => build_all(summary),
    };
    for build in &builds {
        package(summary, build, &dist);
    }
    if !builds.is_empty() {
        summary.step("checksums", || sums(&dist));
    }
}

fn clear() -> Result<PathBuf> {
    let dist = target_dir()?.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).context("cannot clear the last distribution")?;
    }
    fs::create_dir_all(&dist)?;
    Ok(dist)
}

fn package(summary: &mut Summary, build: &Build, dist: &Path) {
    let architecture = build.architecture;
    let folder = dist.join(build.name());
    let step = format!("archive for {architecture}");
    if summary.step(&step, || archive(build, &folder)).is_none() {
        return;
    }
    let package = summary.step(&format!("Debian package for {architecture}"), || {
        let tree = dist.join("debian");
        debian(build, &folder, &tree)
    });
    let image = dist.join("image");
    if build.runs_here() {
        summary.step("image context", || context(build, &image));
        summary.step("try the archive", || try_archive(build, dist));
        if let Some(package) = package {
            summary.step("try the Debian package", || try_package(&package, dist));
        }
        summary.step("try the container file", || try_image(&image));
    }
    // It is in the archive.
    let _ = fs::remove_dir_all(&folder);
}

fn build_debug() -> Result<Build> {
    // As the judges build it: alone, it would need fewer features, and all would be built again.
    let programs = ["--bin", "restive", "--example", "echo"];
    run(cargo(["build", "--workspace", "--locked"]).args(programs))?;
    let (architecture, debian) = host()?;
    let executable = target_dir()?.join("debug/restive");
    Ok(Build { architecture, debian, executable })
}

fn host() -> Result<(&'static str, &'static str)> {
    let here = ARCHITECTURES.iter().find(|(name, _)| *name == std::env::consts::ARCH);
    here.copied().with_context(|| format!("no package is made for {}", std::env::consts::ARCH))
}

/// A build for each architecture whose standard library is installed.
fn build_all(summary: &mut Summary) -> Vec<Build> {
    let installed = installed_targets();
    let mut builds = Vec::new();
    for (architecture, debian) in ARCHITECTURES {
        let target = LIBRARIES
            .iter()
            .map(|library| format!("{architecture}-unknown-linux-{library}"))
            .find(|target| installed.iter().any(|found| found == target));
        let Some(target) = target else {
            println!(
                "    left out: {architecture}; it needs a linker and `rustup target add \
                 {architecture}-unknown-linux-musl`"
            );
            continue;
        };
        let built = summary.step(&format!("build for {target}"), || {
            let executable = build_for(&target)?;
            Ok(Build { architecture, debian, executable })
        });
        builds.extend(built);
    }
    builds
}

/// Targets with a standard library. Without rustup there is that of the compiler.
fn installed_targets() -> Vec<String> {
    let listed = Command::new("rustup").args(["target", "list", "--installed"]).output();
    match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
        }
        _ => vec![format!("{}-unknown-linux-gnu", std::env::consts::ARCH)],
    }
}

/// Static: the program then runs on every distribution, and in an empty image.
fn build_for(target: &str) -> Result<PathBuf> {
    let mut build = cargo(["build", "--release", "--locked", "-p", "restive", "--target", target]);
    run(build.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(target_dir()?.join(target).join("release/restive"))
}

/// The program with licences, an example schema, the unit and completions.
fn archive(build: &Build, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    install(&build.executable, &folder.join("restive"), 0o755)?;
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        install(&root().join(file), &folder.join(file), 0o644)?;
    }
    let unit = Path::new("restive.service");
    install(&root().join("packaging").join(unit), &folder.join(unit), 0o644)?;
    // They are the same for all architectures, so the program of this machine writes them.
    let program = match build.runs_here() {
        true => build.executable.clone(),
        false => target_dir()?.join("debug/restive"),
    };
    run(Command::new(&program).arg("init").arg(folder.join("restive.toml")))?;
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, file) in [("bash", "restive"), ("zsh", "_restive"), ("fish", "restive.fish")] {
        let script = Command::new(&program).args(["completions", shell]).output()?;
        anyhow::ensure!(script.status.success(), "restive completions {shell}: {}", script.status);
        fs::write(completions.join(file), script.stdout)?;
    }
    let parent = folder.parent().context("the folder has a parent")?;
    let file = parent.join(format!("{}.tar.gz", build.name()));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C"]).arg(parent);
    run(tar.arg("-czf").arg(file).arg(build.name()))
}

/// The package: the unit, an example schema as a configuration file, documents and completions.
fn debian(build: &Build, folder: &Path, tree: &Path) -> Result<PathBuf> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    for (from, to, mode) in [
        ("restive", "usr/bin/restive", 0o755),
        ("restive.service", "lib/systemd/system/restive.service", 0o644),
        ("restive.toml", "etc/restive/restive.toml", 0o644),
        ("LICENSE-MIT", "usr/share/doc/restive/copyright", 0o644),
        ("LICENSE-APACHE", "usr/share/doc/restive/LICENSE-APACHE", 0o644),
        ("CHANGELOG.md", "usr/share/doc/restive/CHANGELOG.md", 0o644),
        ("completions/restive", "usr/share/bash-completion/completions/restive", 0o644),
        ("completions/_restive", "usr/share/zsh/vendor-completions/_restive", 0o644),
        ("completions/restive.fish", "usr/share/fish/vendor_completions.d/restive.fish", 0o644),
    ] {
        install(&folder.join(from), &tree.join(to), mode)?;
    }
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control)?;
    fs::write(control.join("control"), control_file(build))?;
    fs::write(control.join("conffiles"), "/etc/restive/restive.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        let source = root().join("packaging/debian").join(script);
        install(&source, &control.join(script), 0o755)?;
    }
    let name = format!("restive_{}_{}.deb", version(), build.debian);
    let package = tree.parent().context("the folder has a parent")?.join(name);
    let mut make = Command::new("dpkg-deb");
    run(make.args(["-Zgzip", "--root-owner-group", "--build"]).arg(tree).arg(&package))?;
    fs::remove_dir_all(tree)?;
    Ok(package)
}

fn control_file(build: &Build) -> String {
    format!(
        "Package: restive\nVersion: {}\nArchitecture: {}\nMaintainer: the restive developers \
         <restive@localhost>\nSection: web\nPriority: optional\nRecommends: ca-certificates\n\
         Description: REST service from a schema file\n Resource API, event log, signed webhooks, \
         live channels, reverse proxy and\n console in one program.\n",
        version(),
        build.debian
    )
}

/// What the container file copies.
fn context(build: &Build, image: &Path) -> Result<()> {
    fs::create_dir_all(image.join("data"))?;
    install(&build.executable, &image.join("restive"), 0o755)?;
    install(&root().join("packaging/Containerfile"), &image.join("Containerfile"), 0o644)?;
    let authorities = image.join("ca-certificates.crt");
    install(Path::new(AUTHORITIES), &authorities, 0o644)
        .context("the package ca-certificates is needed")
}

fn try_archive(build: &Build, dist: &Path) -> Result<()> {
    let unpacked = dist.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    let file = dist.join(format!("{}.tar.gz", build.name()));
    run(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(&unpacked))?;
    let folder = unpacked.join(build.name());
    try_program(&folder.join("restive"), &dist.join("scratch"))?;
    fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// Installs the package into a folder, by the rules of dpkg, and starts what it installed.
fn try_package(package: &Path, dist: &Path) -> Result<()> {
    let system = dist.join("system");
    let database = system.join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(folder))?;
    }
    fs::write(database.join("status"), "")?;
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", system.display()));
    dpkg.args(["--force-script-chrootless", "--force-not-root", "--force-depends"]);
    dpkg.args(["--force-bad-path", "--log=/dev/null", "--install"]);
    run(dpkg.arg(package))?;
    for file in ["etc/restive/restive.toml", "lib/systemd/system/restive.service"] {
        anyhow::ensure!(system.join(file).is_file(), "the package has not installed /{file}");
    }
    let program = system.join("usr/bin/restive");
    run(Command::new(&program).arg("check").arg(system.join("etc/restive/restive.toml")))?;
    try_program(&program, &dist.join("scratch"))?;
    verify_unit(&system.join("lib/systemd/system/restive.service"), &program)?;
    fs::remove_dir_all(system)?;
    Ok(())
}

/// Checks the unit by systemd's own rules, with the program where it is now.
fn verify_unit(unit: &Path, program: &Path) -> Result<()> {
    let text = fs::read_to_string(unit)?;
    fs::write(unit, text.replace("/usr/bin/restive", &program.to_string_lossy()))?;
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(unit).output() else {
        println!("    the unit was not checked: there is no systemd-analyze here");
        return Ok(());
    };
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<&str> = report.lines().filter(|line| line.contains("restive")).collect();
    anyhow::ensure!(ours.is_empty(), "systemd-analyze: {}", ours.join("\n"));
    Ok(())
}

/// Starts the server, asks for its health, and stops it.
fn try_program(program: &Path, scratch: &Path) -> Result<()> {
    run(Command::new(program).arg("--version"))?;
    fs::create_dir_all(scratch)?;
    let mut server = Server::start(program, scratch)?;
    let health = fs::read_to_string(server.save("health")?)?;
    anyhow::ensure!(health.contains("\"status\":\"ok\""), "unexpected health: {health}");
    server.terminate()?;
    fs::remove_dir_all(scratch)?;
    Ok(())
}

/// Builds the image where a builder is installed. Otherwise checks that the context is complete.
fn try_image(image: &Path) -> Result<()> {
    let file = fs::read_to_string(image.join("Containerfile"))?;
    for line in file.lines().filter(|line| line.starts_with("COPY ")) {
        let source = line.split_whitespace().skip(1).find(|word| !word.starts_with("--"));
        let source = source.with_context(|| format!("no source in `{line}`"))?;
        anyhow::ensure!(image.join(source).exists(), "`{line}`: the context has no {source}");
    }
    for builder in ["buildah", "podman"] {
        let exists = Command::new(builder).arg("--version").output().is_ok();
        if exists {
            let mut build = Command::new(builder);
            build.args(["build", "--isolation", "chroot", "--network", "none", "-t", "restive"]);
            return run(build.arg("-f").arg(image.join("Containerfile")).arg(image));
        }
    }
    println!("    the image was not built: neither buildah nor podman is here");
    Ok(())
}

fn sums(dist: &Path) -> Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dist)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".tar.gz") || name.ends_with(".deb") {
            files.push(name);
        }
    }
    files.sort();
    let output = Command::new("sha256sum").args(&files).current_dir(dist).output()?;
    if !output.status.success() {
        bail!("sha256sum: {}", output.status);
    }
    fs::write(dist.join("SHA256SUMS"), &output.stdout)?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// Copies a file, with the folders above it.
fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
