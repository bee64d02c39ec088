//! `kubernetes.*`, `hosted.*` and `vcluster.*`: a host cluster and what runs there. Imports `config::value`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::section::section;
use crate::config::value::{ChartValues, Size};
use crate::domain::Invalid;

/// How the host cluster is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigMode {
    /// There is none.
    #[default]
    None,
    /// By the pod's own ServiceAccount.
    Incluster,
    /// By the file `kubernetes.kubeconfig`.
    Kubeconfig,
}

section! {
    /// The host cluster, for the engines that run control planes as pods.
    pub struct Kubernetes {
        /// `none`, `incluster` (the pod's ServiceAccount) or `kubeconfig` (a file).
        config_mode: ConfigMode = ConfigMode::None,
        /// The kubeconfig of the host cluster, where `config_mode` is `kubeconfig`.
        kubeconfig: Option<PathBuf> = None,
    }
}

impl Kubernetes {
    /// The file belongs to its mode.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        match (&self.kubeconfig, self.config_mode) {
            (None, ConfigMode::Kubeconfig) => {
                problems.push(Invalid::new("kubernetes.config_mode", "kubeconfig needs kubernetes.kubeconfig, the path of the file"));
            }
            (Some(path), ConfigMode::Kubeconfig) if std::fs::File::open(path).is_err() => {
                problems.push(Invalid::new("kubernetes.kubeconfig", format!("{} cannot be read", path.display())));
            }
            (Some(_), ConfigMode::None | ConfigMode::Incluster) => problems.push(Invalid::new(
                "kubernetes.kubeconfig",
                "it is read only where kubernetes.config_mode is kubeconfig; set that, or leave this out",
            )),
            _ => {}
        }
    }
}

section! {
    /// Control planes as pods of the host cluster.
    pub struct Hosted {
        /// Images by component (`etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubebyon`).
        images: BTreeMap<String, String> = BTreeMap::new(),
        /// The StorageClass of etcd's claim; absent: that of the claim in `vcluster.values`.
        storage_class: Option<String> = None,
        /// The size of etcd's claim; absent: that of the claim in `vcluster.values`.
        size: Option<Size> = None,
    }
}

impl Hosted {
    /// Images are of components that there are.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        const COMPONENTS: [&str; 5] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubebyon"];
        for (component, image) in &self.images {
            if !COMPONENTS.contains(&component.as_str()) {
                let message = format!("{component:?} is no component; there are {}", COMPONENTS.join(", "));
                problems.push(Invalid::new("hosted.images", message));
            } else if image.is_empty() || image.contains(char::is_whitespace) {
                problems.push(Invalid::new("hosted.images", format!("{image:?} is no image of {component}")));
            }
        }
    }
}

section! {
    /// The vCluster chart.
    pub struct VclusterChart {
        /// The chart's repository.
        repository: String = "https://charts.loft.sh".into(),
        /// The chart's name.
        name: String = "vcluster".into(),
        /// The chart's version.
        version: String = "0.36.1".into(),
        /// A chart on this machine, in place of the repository's.
        path: Option<PathBuf> = None,
    }
}

section! {
    /// Control planes by the vCluster chart on the host cluster.
    pub struct Vcluster {
        /// The chart's values: YAML text, or a mapping.
        values: ChartValues = ChartValues::default(),
        sections {
            /// Which chart is installed.
            chart: VclusterChart,
        }
    }
}
