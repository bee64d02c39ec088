//! Running Go: each command with a time limit, its output in a log, its last lines in the error.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use super::recipe::Recipe;
use crate::assets::AssetError;
use crate::assets::catalogue::Arch;
use crate::assets::progress::Meter;

/// No single command of Go takes longer, on the slowest machine.
const LIMIT: Duration = Duration::from_secs(3600);
/// How long a built program may take to say its version.
const ANSWER: Duration = Duration::from_secs(30);
/// So many of the log's last lines stand in an error.
const TAIL: usize = 15;

/// Where a module is, as `go mod download -json` says.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Downloaded {
    #[serde(rename = "GoMod")]
    go_mod: PathBuf,
    /// The folder of its files.
    #[serde(rename = "Dir")]
    pub(super) dir: PathBuf,
}

impl Downloaded {
    /// The text of its `go.mod`.
    pub(super) fn go_mod(&self) -> Result<String, AssetError> {
        fs::read_to_string(&self.go_mod).map_err(|e| AssetError::io(&self.go_mod, e))
    }
}

/// Go on this machine, and the folder it works in.
#[derive(Debug)]
pub(super) struct Go {
    version: String,
    dir: PathBuf,
    log: PathBuf,
    arch: Arch,
    cgo: bool,
}

impl Go {
    /// Finds Go, and empties the log.
    pub(super) async fn find(dir: &Path, log: PathBuf, arch: Arch, cgo: bool) -> Result<Self, AssetError> {
        File::create(&log).map_err(|e| AssetError::io(&log, e))?;
        let mut go = Self { version: String::new(), dir: dir.to_owned(), log, arch, cgo };
        let missing = |e| {
            AssetError::Build(format!(
                "Go cannot be run ({e}): install Go 1.26 or newer, or bring the programs with --from FOLDER or --mirror URL"
            ))
        };
        let said = go.command(&["env", "GOVERSION"]).output().await.map_err(missing)?;
        String::from_utf8_lossy(&said.stdout).trim().clone_into(&mut go.version);
        Ok(go)
    }

    /// Its version, such as `go1.26.8`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Refuses where C cannot be compiled and linked statically with libseccomp for the architecture.
    pub(super) async fn check_c_toolchain(&self) -> Result<(), AssetError> {
        let remedy = "building runc needs a C compiler, pkg-config and libseccomp with its static library: \
                      run `apt-get install gcc libc6-dev pkg-config libseccomp-dev`";
        if self.arch != Arch::host() && std::env::var_os("CC").is_none() {
            return Err(AssetError::Build(format!(
                "runc is compiled from C and cannot be built for {} here: set CC and PKG_CONFIG_PATH to a cross toolchain, or fetch it",
                self.arch.name()
            )));
        }
        let compiler = std::env::var("CC").unwrap_or_else(|_| "gcc".to_owned());
        for (program, args) in [(compiler.as_str(), &["--version"][..]), ("pkg-config", &["--exists", "libseccomp"])] {
            let ran = Command::new(program).args(args).stdin(Stdio::null()).output().await;
            match ran {
                Ok(output) if output.status.success() => {}
                Ok(_) => return Err(AssetError::Build(format!("`{program} {}` says no: {remedy}", args.join(" ")))),
                Err(e) => return Err(AssetError::Build(format!("{program} cannot be run ({e}): {remedy}"))),
            }
        }
        Ok(())
    }

    /// Downloads a module.
    pub(super) async fn download(&self, module: &str, version: &str, meter: &dyn Meter) -> Result<Downloaded, AssetError> {
        meter.note(module);
        let json = self.run(&["mod", "download", "-json", &format!("{module}@{version}")], meter).await?;
        serde_json::from_str(&json)
            .map_err(|e| AssetError::Build(format!("`go mod download` of {module}@{version} said nothing useful ({e})")))
    }

    /// Compiles one file of C into a static program without libraries of its own.
    pub(super) async fn compile_c(&self, source: &Path, defines: &[String], target: &Path) -> Result<(), AssetError> {
        let compiler = std::env::var("CC").unwrap_or_else(|_| "gcc".to_owned());
        let remedy = "building pause needs a C compiler and the static libc: run `apt-get install gcc libc6-dev`";
        if self.arch != Arch::host() && std::env::var_os("CC").is_none() {
            return Err(AssetError::Build(format!("pause is compiled from C: set CC to a cross compiler for {}", self.arch.name())));
        }
        let mut command = Command::new(&compiler);
        command.args(["-Os", "-Wall", "-Werror", "-static"]).args(defines).arg("-o").args([target, source]);
        let ran = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = match tokio::time::timeout(LIMIT, ran).await {
            Ok(ran) => ran.map_err(|e| AssetError::Build(format!("{compiler} cannot be run ({e}): {remedy}")))?,
            Err(_) => return Err(AssetError::Build(format!("{compiler} does not end"))),
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().rev().take(TAIL).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n  ");
        Err(AssetError::Build(format!("`{compiler}` failed ({}):\n  {said}\n{remedy}", output.status)))
    }

    /// Builds one package into `target`.
    pub(super) async fn build(&self, package: &str, recipe: &Recipe, target: &Path, meter: &dyn Meter) -> Result<(), AssetError> {
        let target =
            target.to_str().ok_or_else(|| AssetError::Build(format!("{} is no name for Go: use another folder", target.display())))?;
        meter.note("modules");
        self.run(&["build", "-v", "-tags", recipe.tags, "-ldflags", &recipe.ldflags, "-o", target, package], meter).await.map(drop)
    }

    /// Runs a built program and looks for its version in the answer.
    pub(super) async fn check_says(&self, program: &Path, args: &[&str], expected: &str) -> Result<(), AssetError> {
        let run = Command::new(program).args(args).env_clear().env("HOME", &self.dir).stdin(Stdio::null()).kill_on_drop(true).output();
        let output = match tokio::time::timeout(ANSWER, run).await {
            Ok(ran) => ran.map_err(|e| AssetError::io(program, e))?,
            Err(_) => return Err(AssetError::Build(format!("{} was built but does not answer {args:?}", program.display()))),
        };
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if said.contains(expected) {
            return Ok(());
        }
        Err(AssetError::Build(format!("{} was built but says {:?} where {expected} was expected", program.display(), said.trim())))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("go");
        command.args(args).current_dir(&self.dir).stdin(Stdio::null()).kill_on_drop(true);
        command.env("GOFLAGS", "-mod=mod -buildvcs=false").env("GOWORK", "off").env("GO111MODULE", "on");
        command.env("GOOS", "linux").env("GOARCH", self.arch.name()).env("CGO_ENABLED", if self.cgo { "1" } else { "0" });
        let unset = |name: &str| std::env::var_os(name).is_none_or(|v| v.is_empty());
        if unset("HOME") {
            // A service has no home; Go wants folders for its caches.
            let caches = self.dir.with_file_name("go");
            command.env("GOPATH", caches.join("path")).env("GOCACHE", caches.join("cache"));
        }
        command
    }

    /// Runs one command; its errors go to the log and their last line to the meter; gives its output.
    async fn run(&self, args: &[&str], meter: &dyn Meter) -> Result<String, AssetError> {
        let fail = |e: std::io::Error| AssetError::Build(format!("go cannot be run: {e}"));
        let mut log = File::options().append(true).open(&self.log).map_err(|e| AssetError::io(&self.log, e))?;
        let _ = writeln!(log, "$ go {}", args.join(" "));
        let mut child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(fail)?;
        let mut stdout = child.stdout.take().expect("it was piped");
        let mut lines = BufReader::new(child.stderr.take().expect("it was piped")).lines();
        let mut said = String::new();
        let follow = async {
            let mut last = String::new();
            let mut tick = tokio::time::interval(Duration::from_secs(1));
            loop {
                tokio::select! {
                    line = lines.next_line() => match line? {
                        Some(line) => {
                            writeln!(log, "{line}")?;
                            last = line;
                            meter.note(&last);
                        }
                        None => return Ok::<_, std::io::Error>(()),
                    },
                    _ = tick.tick() => meter.note(&last),
                }
            }
        };
        let all = async { tokio::try_join!(follow, stdout.read_to_string(&mut said)) };
        match tokio::time::timeout(LIMIT, all).await {
            Ok(done) => done.map_err(fail)?,
            Err(_) => return Err(self.failure(args, &format!("did not end within {} minutes", LIMIT.as_secs() / 60), &said)),
        };
        let status = child.wait().await.map_err(fail)?;
        if status.success() { Ok(said) } else { Err(self.failure(args, &format!("failed ({status})"), &said)) }
    }

    /// An error with the end of the log; what `go mod download -json` says of an error stands in its output.
    fn failure(&self, args: &[&str], what: &str, said: &str) -> AssetError {
        let log = fs::read_to_string(&self.log).unwrap_or_default() + said;
        if log.contains("no space left on device") {
            return AssetError::DiskFull { path: self.dir.clone() };
        }
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
        let proxy = std::env::var("GOPROXY").unwrap_or_else(|_| "Go's default proxy".to_owned());
        AssetError::Build(format!(
            "`go {}` {what}:\n  {tail}\nThe whole log is {}. Modules come from {proxy}: check that it answers, then run the command again; \
             what was built is kept in Go's cache",
            args.first().unwrap_or(&""),
            self.log.display()
        ))
    }
}
