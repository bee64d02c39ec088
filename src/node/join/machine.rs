//! Carrying out those steps of a plan that change the machine itself: packages, modules, settings, labels.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::journal::{Journal, Made, explain};
use super::service::{run, run_within};
use crate::node::layout::Layout;
use crate::node::machine::kernel::SYSCTLS_OF_KUBERNETES;
use crate::node::machine::{Facts, PackageTool};
use crate::node::show::Show;

/// How long a package manager may take: mirrors are slow, and others hold its lock.
const PACKAGES_WITHIN: Duration = Duration::from_secs(600);

/// Installs packages. They are not taken away by `leave`: others may use them by then.
pub async fn packages(tool: PackageTool, names: &[String]) -> anyhow::Result<()> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (program, before, install): (&str, Option<&[&str]>, &[&str]) = match tool {
        PackageTool::Apt => {
            let options: &[&str] = &["-o", "DPkg::Lock::Timeout=300", "-y", "--no-install-recommends", "install"];
            ("apt-get", Some(&["update", "-q"]), options)
        }
        PackageTool::Dnf => ("dnf", None, &["install", "-y"]),
        PackageTool::Zypper => ("zypper", None, &["--non-interactive", "install"]),
        PackageTool::Unknown => anyhow::bail!("packages cannot be installed here: {}, then join again", tool.install(&names.join(" "))),
    };
    let remedy =
        || format!("packages cannot be installed: run `{}` yourself, then join again with --no-packages", tool.install(&names.join(" ")));
    if let Some(before) = before {
        // A mirror that is away is no matter while the package is in the lists.
        let _ = run_within(Path::new(program), before, PACKAGES_WITHIN).await;
    }
    run_within(Path::new(program), &[install, &names].concat(), PACKAGES_WITHIN).await.map(drop).with_context(remedy)
}

/// Loads modules, and has them loaded at boot. One that is not there was judged before.
pub async fn modules(layout: &Layout, journal: &mut Journal, names: &[String], file: &Path, show: &dyn Show) -> anyhow::Result<()> {
    let text = format!("# Written by `kubebyon join`: modules that a node needs.\n{}\n", names.join("\n"));
    journal.write(file, text.as_bytes(), 0o644)?;
    // Another root is no machine whose kernel this is.
    if layout.root() != Path::new("/") || !Path::new("/proc/modules").exists() {
        return Ok(());
    }
    for name in names {
        if let Err(error) = run(Path::new("modprobe"), &[name]).await {
            tracing::debug!(%error, name, "a module was not loaded");
            if !Path::new("/sys/module").join(name).exists() && Path::new("/lib/modules").exists() {
                show.note(&format!("the module {name} could not be loaded ({error:#})"));
            }
        }
    }
    Ok(())
}

/// Sets settings of the kernel, and has them set at boot. What they were is noted, and so is what the kubelet is going to change.
pub fn sysctls(
    facts: &Facts,
    layout: &Layout,
    journal: &mut Journal,
    values: &BTreeMap<String, String>,
    file: &Path,
) -> anyhow::Result<()> {
    let lines: Vec<String> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let lines = lines.join("\n");
    journal.write(file, format!("# Written by `kubebyon join`: what a node needs of the kernel.\n{lines}\n").as_bytes(), 0o644)?;
    let noted: Vec<String> =
        journal.entries().iter().filter_map(|made| if let Made::Sysctl { name, .. } = made { Some(name.clone()) } else { None }).collect();
    let remembered = values.keys().map(String::as_str).chain(SYSCTLS_OF_KUBERNETES).filter(|name| !noted.iter().any(|n| n == name));
    for name in remembered.collect::<Vec<_>>() {
        // Read again: br_netfilter's own appear with the module.
        let former = std::fs::read_to_string(setting(layout, name)).ok().map(|value| value.trim().to_owned());
        if let Some(former) = former.or_else(|| facts.sysctls.get(name).cloned()) {
            journal.note(Made::Sysctl { name: name.to_owned(), former })?;
        }
    }
    for (name, value) in values {
        let path = setting(layout, name);
        let present = std::fs::read_to_string(&path);
        match present {
            Ok(present) if present.trim() == value => {}
            // Absent with its module.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            _ => std::fs::write(&path, format!("{value}\n"))
                .map_err(explain)
                .with_context(|| format!("cannot set {name} to {value}: run `sysctl -w {name}={value}`, and see what refuses it"))?,
        }
    }
    Ok(())
}

/// The file of a setting.
pub fn setting(layout: &Layout, name: &str) -> PathBuf {
    layout.root().join("proc/sys").join(name.replace('.', "/"))
}

/// Gives programs their SELinux labels.
pub async fn labels(folders: &[PathBuf]) -> anyhow::Result<()> {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let args: Vec<&str> = ["-R"].into_iter().chain(folders.iter().map(String::as_str)).collect();
    run(Path::new("restorecon"), &args).await.map(drop).context("SELinux labels cannot be set")
}
