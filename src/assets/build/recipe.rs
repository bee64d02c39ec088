//! How each kind is built: modules, packages, flags. Pure.

use std::fmt::Write;

use crate::assets::AssetError;
use crate::assets::catalogue::{COREDNS, Kind, Want};

/// The one program that is all programs of Kubernetes, by the name it is called by: tenants that run the same file share its text.
const KUBERNETES_MAIN: &str = include_str!("kubernetes.go.txt");

/// How one item is built; for images, how the programs in them are that Go builds.
#[derive(Debug)]
pub(super) struct Recipe {
    /// Modules and their versions; the first is the item's own, and says which Go it wants.
    pub(super) modules: Vec<(&'static str, String)>,
    /// `main.go`, where the item's own modules have no fitting program.
    pub(super) main: Option<&'static str>,
    /// What to build.
    pub(super) programs: Vec<Program>,
    /// Further names of the first program.
    pub(super) links: &'static [&'static str],
    /// Whether C is compiled.
    pub(super) cgo: bool,
    /// Build tags, separated by commas.
    pub(super) tags: &'static str,
    /// The linker's flags.
    pub(super) ldflags: String,
    /// Which programs say their version when called how: name, arguments, what must stand in the answer.
    pub(super) says: Vec<(&'static str, &'static [&'static str], String)>,
}

/// One program.
#[derive(Debug)]
pub(super) struct Program {
    /// Its file's name.
    pub(super) file: &'static str,
    /// Its package.
    pub(super) package: &'static str,
}

const fn program(file: &'static str, package: &'static str) -> Program {
    Program { file, package }
}

impl Recipe {
    /// The recipe of an item.
    pub(super) fn of(want: &Want) -> Result<Self, AssetError> {
        let v = want.version.as_str();
        let plain = |modules, programs, ldflags: String| Self {
            modules,
            main: None,
            programs,
            links: &[],
            cgo: false,
            tags: "",
            ldflags: format!("-s -w {ldflags}").trim_end().to_owned(),
            says: Vec::new(),
        };
        Ok(match want.kind {
            Kind::Kubernetes => kubernetes(v, plain)?,
            Kind::Etcd => Self {
                says: vec![("etcd", &["--version"], v.to_owned())],
                ..plain(
                    vec![("go.etcd.io/etcd/server/v3", format!("v{v}"))],
                    vec![program("etcd", "go.etcd.io/etcd/server/v3")],
                    String::new(),
                )
            },
            Kind::Helm => {
                let (module, package) = if v.starts_with("3.") {
                    ("helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm")
                } else {
                    ("helm.sh/helm/v4", "helm.sh/helm/v4/cmd/helm")
                };
                Self {
                    says: vec![("helm", &["version", "--short"], format!("v{v}"))],
                    ..plain(
                        vec![(module, format!("v{v}"))],
                        vec![program("helm", package)],
                        format!("-X {module}/internal/version.version=v{v}"),
                    )
                }
            }
            Kind::Containerd => Self {
                tags: "no_btrfs,no_zfs,no_devmapper",
                says: vec![("containerd", &["--version"], format!("v{v}")), ("ctr", &["--version"], format!("v{v}"))],
                ..plain(
                    vec![("github.com/containerd/containerd/v2", format!("v{v}"))],
                    vec![
                        program("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
                        program("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
                        program("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
                    ],
                    format!("-X github.com/containerd/containerd/v2/version.Version=v{v}"),
                )
            },
            Kind::Runc => Self {
                cgo: true,
                tags: "netgo,osusergo,seccomp",
                says: vec![("runc", &["--version"], v.to_owned())],
                ..plain(
                    vec![("github.com/opencontainers/runc", format!("v{v}"))],
                    vec![program("runc", "github.com/opencontainers/runc")],
                    format!("-X main.version={v} -extldflags -static"),
                )
            },
            Kind::CniPlugins => Self {
                says: vec![("bridge", &[], format!("v{v}"))],
                ..plain(
                    vec![("github.com/containernetworking/plugins", format!("v{v}"))],
                    vec![
                        program("bridge", "github.com/containernetworking/plugins/plugins/main/bridge"),
                        program("loopback", "github.com/containernetworking/plugins/plugins/main/loopback"),
                        program("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"),
                        program("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"),
                    ],
                    format!("-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v{v}"),
                )
            },
            Kind::Images => Self {
                says: vec![("coredns", &["-version"], format!("CoreDNS-{COREDNS}"))],
                ..plain(
                    vec![("github.com/coredns/coredns", format!("v{COREDNS}"))],
                    vec![program("coredns", "github.com/coredns/coredns")],
                    String::new(),
                )
            },
        })
    }

    /// The `go.mod` of our own module, from the `go.mod` of the item's own: a dependency's `replace` lines count for nothing, so
    /// Kubernetes' staging modules are named at the versions they are published in (v0.x where Kubernetes is v1.x).
    pub(super) fn go_mod(&self, primary: &str) -> String {
        let line = |prefix: &str| primary.lines().find(|l| l.starts_with(prefix)).unwrap_or_default();
        let mut text = format!("module kubebyon.invalid/build\n\n{}\n", line("go "));
        // The runtime behaves as the publisher's own build does.
        let _ = writeln!(text, "{}", line("godebug "));
        for (module, version) in &self.modules {
            let _ = writeln!(text, "require {module} {version}");
        }
        let staged = self.modules[0].1.replacen("v1.", "v0.", 1);
        for replaced in primary.lines().map(str::trim).filter_map(|l| l.split_once(" => ./staging/")) {
            let module = replaced.0.trim_start_matches("replace ").trim();
            let _ = writeln!(text, "replace {module} => {module} {staged}");
        }
        text
    }
}

fn kubernetes(version: &str, plain: impl Fn(Vec<(&'static str, String)>, Vec<Program>, String) -> Recipe) -> Result<Recipe, AssetError> {
    let mut parts = version.split('.');
    let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
        return Err(AssetError::Unknown(format!("{version:?} is no Kubernetes version; it looks like 1.34.4")));
    };
    let mut ldflags = String::new();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        let _ = write!(ldflags, "-X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} ");
    }
    let answer = format!("Kubernetes v{version}");
    Ok(Recipe {
        main: Some(KUBERNETES_MAIN),
        links: Kind::Kubernetes.programs(),
        says: vec![
            ("kube-apiserver", &["--version"], answer.clone()),
            ("kubelet", &["--version"], answer),
            ("kubectl", &["version", "--client"], format!("v{version}")),
        ],
        ..plain(vec![("k8s.io/kubernetes", format!("v{version}"))], vec![program("kubernetes", ".")], ldflags)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::catalogue::Arch;

    #[test]
    fn every_item_of_the_catalogue_has_a_recipe_for_each_of_its_programs() {
        for want in Want::all(Arch::Amd64).into_iter().filter(|want| want.kind != Kind::Images) {
            let recipe = Recipe::of(&want).unwrap();
            let made: Vec<&str> = recipe.programs.iter().map(|p| p.file).chain(recipe.links.iter().copied()).collect();
            for name in want.kind.programs() {
                assert!(made.contains(name), "{want} lacks {name}");
            }
        }
    }

    #[test]
    fn kubernetes_names_its_staging_modules() {
        let want = Want { kind: Kind::Kubernetes, version: "1.34.4".into(), arch: Arch::Amd64 };
        let theirs =
            "module k8s.io/kubernetes\n\ngo 1.24.0\n\ngodebug default=go1.24\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n";
        let ours = Recipe::of(&want).unwrap().go_mod(theirs);
        assert!(ours.contains("\ngo 1.24.0\ngodebug default=go1.24\n"), "{ours}");
        assert!(ours.contains("require k8s.io/kubernetes v1.34.4\nreplace k8s.io/api => k8s.io/api v0.34.4\n"), "{ours}");
    }
}
