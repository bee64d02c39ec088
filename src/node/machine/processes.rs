//! Which of the programs run here that a join must know of.

use std::path::Path;

use super::text;

/// What runs here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Running {
    /// Kubernetes' programs that are not ours, by the names of their processes.
    pub kubernetes: Vec<String>,
    /// Whether our own kubelet runs.
    pub own_kubelet: bool,
    /// Whether Docker runs.
    pub docker: bool,
    /// Whether firewalld runs.
    pub firewalld: bool,
}

const KUBERNETES: [&str; 7] = ["kubelet", "k3s", "k3s-agent", "k3s-server", "rke2", "k0s", "kubelite"];

impl Running {
    /// Looks through `/proc` below a root.
    pub fn read(root: &Path) -> Self {
        let mut found = Self::default();
        let Ok(entries) = std::fs::read_dir(root.join("proc")) else { return found };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else { continue };
            let Some(command) = text(root, &format!("proc/{pid}/comm")) else { continue };
            match command.trim() {
                "dockerd" => found.docker = true,
                "firewalld" => found.firewalld = true,
                program if KUBERNETES.contains(&program) => {
                    // Without the right to look, it is taken for a stranger's.
                    let file = std::fs::read_link(root.join(format!("proc/{pid}/exe")));
                    if file.is_ok_and(|file| file.starts_with("/opt/kubebyon")) {
                        found.own_kubelet |= program == "kubelet";
                    } else {
                        found.kubernetes.push(program.to_owned());
                    }
                }
                _ => {}
            }
        }
        found.kubernetes.sort();
        found.kubernetes.dedup();
        found
    }
}
