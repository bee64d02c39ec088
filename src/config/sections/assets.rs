//! `assets.*`: where Kubernetes' programs come from. Imports nothing of ours beside the section.

use std::path::PathBuf;

use crate::config::section::section;
use crate::domain::Invalid;

section! {
    /// Kubernetes' programs.
    pub struct Assets {
        /// Where the programs are kept, by version; absent: `assets` in `data_dir`. May be filled beforehand.
        dir: Option<PathBuf> = None,
        /// A server to fetch the programs from in place of the upstream ones, with the same paths below it.
        mirror: Option<String> = None,
    }
}

impl Assets {
    /// The mirror is an HTTP URL.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        if let Some(mirror) = &self.mirror
            && !super::is_http_url(mirror)
        {
            problems
                .push(Invalid::new("assets.mirror", format!("{mirror:?} is no URL; it looks like https://mirror.example.com/kubernetes")));
        }
    }
}
