//! `kubebyon version`.

use super::output::{self, Format};

/// Prints the version of this binary and of the Kubernetes that it knows.
pub fn run(format: Format) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Json | Format::Yaml => {
            let kubernetes: Vec<String> = crate::assets::catalogue::RELEASES.iter().map(|release| release.kubernetes.to_string()).collect();
            output::value(format, &serde_json::json!({ "version": version, "arch": std::env::consts::ARCH, "kubernetes": kubernetes }))
        }
        _ => {
            output::line(&format!("kubebyon {version} ({})", std::env::consts::ARCH));
            Ok(())
        }
    }
}
