use std::io::Read as _;

use super::*;
use crate::assets::Mirror;

/// Puts an item into an assets folder: its programs, those of Kubernetes being one file by several names.
fn item(root: &Path, want: &Want) {
    let dir = want.dir(root);
    fs::create_dir_all(&dir).unwrap();
    let mut files = serde_json::Map::new();
    let mut record = |name: &str, text: &str, link: Option<&str>| {
        let sha256 = hex::encode(Sha256::digest(text));
        files.insert(
            name.into(),
            serde_json::json!({"sha256": sha256, "size": text.len(), "source": "built", "origin": "here", "link": link}),
        );
    };
    for name in want.kind.programs() {
        if want.kind == Kind::Kubernetes {
            std::os::unix::fs::symlink("kubernetes", dir.join(name)).unwrap();
            record(name, "all of it", Some("kubernetes"));
        } else {
            fs::write(dir.join(name), format!("program {name}")).unwrap();
            record(name, &format!("program {name}"), None);
        }
    }
    if want.kind == Kind::Kubernetes {
        fs::write(dir.join("kubernetes"), "all of it").unwrap();
        record("kubernetes", "all of it", None);
    }
    let manifest = serde_json::json!({
        "format": 1, "kind": want.kind.name(), "version": want.version, "arch": want.arch.name(), "files": files
    });
    fs::write(dir.join("manifest.json"), manifest.to_string()).unwrap();
}

/// An assets folder with the programs of nodes of one version.
fn files() -> (tempfile::TempDir, FilesForNodes) {
    let folder = tempfile::tempdir().unwrap();
    let (root, arch) = (folder.path().join("assets"), Arch::host());
    item(&root, &Want::kubernetes(KubernetesVersion::new(1, 36, 3), arch));
    for want in Want::node_set(arch) {
        item(&root, &want);
    }
    let assets = Arc::new(Assets::open(root, arch, Mirror::upstream()));
    (folder, FilesForNodes::new(assets).unwrap())
}

fn content(file: NodeFile) -> Vec<u8> {
    let mut file = file;
    let mut bytes = Vec::new();
    file.file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, file.size);
    assert_eq!(hex::encode(Sha256::digest(&bytes)), file.sha256);
    bytes
}

#[tokio::test]
async fn every_file_of_a_set_can_be_fetched_and_is_what_is_promised() {
    let (folder, files) = files();
    let images = folder.path().join("assets/images").join(Arch::host().name());
    fs::create_dir_all(&images).unwrap();
    for (name, text) in [("own.tar", "own"), ("b.tar.zst", "b"), ("notes.txt", "no"), (".hidden.tar", "no"), ("empty.tar", "")] {
        fs::write(images.join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", images.join("link.tar")).unwrap();
    let set = files.set(KubernetesVersion::new(1, 36, 3), Arch::host().name()).await.unwrap().unwrap();
    let kinds: std::collections::BTreeSet<&str> = set.programs.iter().map(|file| file.kind.as_str()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["cni-plugins", "containerd", "kubebyon", "kubernetes", "runc"]);
    assert_eq!(set.programs.iter().filter(|file| file.kind == "kubernetes").count(), 3);
    assert_eq!(set.images.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["b.tar.zst", "own.tar"]);
    for file in set.programs.iter().chain(&set.images) {
        let open = files.open(file.path.strip_prefix("/assets/").unwrap()).await.unwrap().unwrap();
        assert_eq!((open.size, &open.sha256), (file.size, &file.sha256), "{}", file.path);
        content(open);
    }
}

#[tokio::test]
async fn nothing_else_can_be_fetched() {
    let (folder, files) = files();
    let arch = Arch::host().name();
    fs::write(folder.path().join("assets/kubernetes/1.36.3").join(arch).join("stranger"), "x").unwrap();
    for path in [
        format!("kubernetes/1.36.3/{arch}/kube-apiserver"),
        format!("kubernetes/1.36.3/{arch}/manifest.json"),
        format!("kubernetes/1.36.3/{arch}/stranger"),
        format!("kubernetes/1.34.4/{arch}/kubelet"),
        format!("kubernetes/../1.36.3/{arch}/kubelet"),
        format!("kubernetes//1.36.3/{arch}/kubelet"),
        format!("kubernetes/./{arch}/kubelet"),
        format!("kubernetes/1.36.3/{arch}/kubelet/"),
        format!("kubernetes/1.36.3/{arch}/%2e%2e"),
        format!("etcd/3.6.13/{arch}/etcd"),
        format!("images/{arch}/../../kubernetes/1.36.3/{arch}/kubelet"),
        format!("images/{arch}/manifest.json"),
        format!("kubebyon/0.0.0/{arch}/kubebyon"),
        "kubernetes/1.36.3/riscv64/kubelet".to_owned(),
        "../../etc/passwd".to_owned(),
        "/etc/passwd".to_owned(),
        "\0".to_owned(),
        String::new(),
    ] {
        assert!(files.open(&path).await.unwrap().is_none(), "{path:?}");
    }
}

#[tokio::test]
async fn what_is_missing_comes_with_the_command_that_brings_it() {
    let (folder, files) = files();
    let missing = files.set(KubernetesVersion::new(1, 34, 4), Arch::host().name()).await.unwrap().unwrap_err();
    assert!(missing.contains("`kubebyon assets fetch --nodes --kubernetes 1.34.4` on the platform's host"), "{missing}");
    let other = if Arch::host() == Arch::Amd64 { Arch::Arm64 } else { Arch::Amd64 };
    let missing = files.set(KubernetesVersion::new(1, 36, 3), other.name()).await.unwrap().unwrap_err();
    assert!(missing.contains(&format!("--kubernetes 1.36.3 --arch {}`", other.name())), "{missing}");
    let absent = files.kubebyon(other.name()).await.unwrap().unwrap_err();
    let place = folder.path().join("assets/kubebyon").join(VERSION).join(other.name()).join("kubebyon");
    assert!(absent.contains(&place.display().to_string()), "{absent}");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, "for others").unwrap();
    let there = files.kubebyon(other.name()).await.unwrap().unwrap();
    let open = files.open(there.path.strip_prefix("/assets/").unwrap()).await.unwrap().unwrap();
    assert_eq!(content(open), b"for others");
    // Another content is another hash.
    fs::write(&place, "for others, newer").unwrap();
    assert_ne!(files.kubebyon(other.name()).await.unwrap().unwrap().sha256, there.sha256);
}

#[tokio::test]
async fn this_program_is_read_by_many_at_once() {
    let (_folder, files) = files();
    let own = files.kubebyon(Arch::host().name()).await.unwrap().unwrap();
    let path = own.path.strip_prefix("/assets/").unwrap();
    let (mut first, mut second) = (files.open(path).await.unwrap().unwrap(), files.open(path).await.unwrap().unwrap());
    let (mut a, mut b) = ([0; 64], [0; 64]);
    first.file.read_exact(&mut a).unwrap();
    second.file.read_exact(&mut b).unwrap();
    assert_eq!(a, b, "each reads from the beginning");
    assert_eq!(&a[1..4], b"ELF");
}
