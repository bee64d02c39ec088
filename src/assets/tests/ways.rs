//! Ways into the store, and what goes wrong on them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use sha2::Digest;

use super::mirror::{Fault, Server, archive, program, published};
use super::*;

fn runc_path() -> String {
    runc().downloads().remove(0).path
}

async fn fetch_runc(server: &Server, dir: &Path, steps: &Steps) -> Result<Vec<Outcome>, AssetError> {
    open(dir, server.mirror()).ensure(&[runc()], &NEVER, steps).await
}

#[tokio::test]
async fn a_control_plane_comes_from_a_mirror_and_stays() {
    let version = catalogue::default_version();
    let wants = Want::control_plane(version, Arch::Amd64).unwrap();
    let server = Server::start(&wants).await;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("deep/assets"), server.mirror());
    let missing = store.programs(version).unwrap_err().to_string();
    assert_eq!(missing, "kubernetes 1.36.3 (amd64) is missing: run `kubebyon assets fetch --kubernetes 1.36.3`");

    let steps = Steps::default();
    let outcomes = store.ensure(&wants, &NEVER, &steps).await.unwrap();
    assert_eq!(outcomes, [Outcome::Installed(Source::Fetched), Outcome::Installed(Source::Fetched)]);
    let set = store.programs(version).unwrap();
    for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "etcd"] {
        let path = set.path(name).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), program(name), "{name}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755, "{name}");
    }
    assert_eq!(set.path("helm"), None);
    assert!(steps.text().contains("kubernetes 1.36.3 (amd64): fetched, 1.8 MB"), "{}", steps.text());

    let asked = server.ranges(&wants[0].downloads()[0].path).len();
    assert_eq!(store.ensure(&wants, &NEVER, &Logged).await.unwrap(), [Outcome::Present, Outcome::Present]);
    assert_eq!(server.ranges(&wants[0].downloads()[0].path).len(), asked, "what is there is not fetched again");
    assert!(!tree(store.dir()).iter().any(|p| p.starts_with(".staging")), "{:?}", tree(store.dir()));
}

#[tokio::test]
async fn a_cut_download_goes_on_where_it_ended() {
    let server = Server::start(&[runc()]).await;
    server.fail(&runc_path(), &[Fault::Cut(100_000), Fault::Stall(50_000), Fault::Status(503)]);
    let dir = tempfile::tempdir().unwrap();
    fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap();
    let ranges = server.ranges(&runc_path());
    let from = |text: &str| Some(text.to_owned());
    assert_eq!(ranges, [None, from("100000-"), from("150000-"), from("150000-")]);
    assert_eq!(std::fs::read(runc().dir(dir.path()).join("runc")).unwrap(), program("runc"));
}

#[tokio::test]
async fn another_run_uses_what_an_earlier_one_left() {
    let server = Server::start(&[runc()]).await;
    server.fail(&runc_path(), &[Fault::Cut(100_000), Fault::Status(502), Fault::Status(502), Fault::Status(502)]);
    let dir = tempfile::tempdir().unwrap();
    let error = fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap_err();
    assert!(matches!(error, AssetError::Unreachable { .. }), "{error}");
    assert!(tree(dir.path())[0].ends_with("runc.amd64.partial"), "{:?}", tree(dir.path()));
    fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap();
    assert_eq!(server.ranges(&runc_path()).last().unwrap().as_deref(), Some("100000-"));
}

#[tokio::test]
async fn a_server_without_ranges_sends_the_whole_again() {
    let server = Server::start(&[runc()]).await;
    server.fail(&runc_path(), &[Fault::Cut(100_000), Fault::NoRange]);
    let dir = tempfile::tempdir().unwrap();
    fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap();
    assert_eq!(std::fs::read(runc().dir(dir.path()).join("runc")).unwrap(), program("runc"));
}

#[tokio::test]
async fn a_part_of_something_else_is_thrown_away() {
    let server = Server::start(&[runc()]).await;
    server.fail(&runc_path(), &[Fault::Cut(100_000), Fault::Status(404)]);
    let dir = tempfile::tempdir().unwrap();
    fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap_err();
    let partial = dir.path().join(&tree(dir.path())[0]);
    std::fs::write(&partial, vec![b'x'; 120_000]).unwrap();
    let steps = Steps::default();
    fetch_runc(&server, dir.path(), &steps).await.unwrap();
    assert!(steps.text().contains("did not fit; fetching it whole"), "{}", steps.text());
    assert_eq!(std::fs::read(runc().dir(dir.path()).join("runc")).unwrap(), program("runc"));
}

#[tokio::test]
async fn a_wrong_checksum_installs_nothing_and_is_never_built_around() {
    let server = Server::start(&[runc()]).await;
    server.put(&runc_path(), program("evil"));
    let dir = tempfile::tempdir().unwrap();
    let auto = Mode { seed: None, build: BuildMode::Auto };
    let error = open(dir.path(), server.mirror()).ensure(&[runc()], &auto, &Logged).await.unwrap_err();
    assert!(matches!(error, AssetError::Checksum { .. }), "{error}");
    assert!(error.to_string().contains("nothing was installed"), "{error}");
    assert_eq!(tree(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn without_a_published_checksum_nothing_is_used() {
    let server = Server::start(&[runc()]).await;
    server.put(&runc().downloads()[0].checksums, b"<html>sign in to the wireless</html>".to_vec());
    let dir = tempfile::tempdir().unwrap();
    let error = fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap_err().to_string();
    assert!(error.contains("runc.sha256sum: it has no SHA-256 of runc.amd64"), "{error}");
}

#[tokio::test]
async fn what_is_not_there_is_not_asked_for_again() {
    let server = Server::start(&[]).await;
    let dir = tempfile::tempdir().unwrap();
    let error = fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap_err();
    assert!(matches!(error, AssetError::NotFound { .. }), "{error}");
    assert_eq!(server.ranges(&runc().downloads()[0].checksums).len(), 1);
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let server = Server::start(&[runc()]).await;
    server.fail(&runc_path(), &[Fault::Stall(0); 9]);
    let dir = tempfile::tempdir().unwrap();
    let error = fetch_runc(&server, dir.path(), &Steps::default()).await.unwrap_err().to_string();
    assert!(error.contains("is out of reach: nothing came for 250ms"), "{error}");
    assert_eq!(server.ranges(&runc_path()).len(), 3);
}

#[tokio::test]
async fn a_host_that_is_down_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Mirror::Url(base));
    let error = store.ensure(&[runc()], &NEVER, &Logged).await.unwrap_err().to_string();
    assert!(error.contains("is out of reach: Connection refused"), "{error}");
}

#[tokio::test]
async fn files_too_large_are_refused() {
    let server = Server::start(&[runc()]).await;
    let dir = tempfile::tempdir().unwrap();
    let store = Assets::open(dir.path(), Arch::Amd64, server.mirror()).with_pace(Pace { max_bytes: 299_999, ..quick() });
    let error = store.ensure(&[runc()], &NEVER, &Logged).await.unwrap_err().to_string();
    assert!(error.contains("larger than 299999 bytes"), "{error}");
}

#[tokio::test]
async fn an_archive_without_a_program_installs_nothing() {
    let server = Server::start(&[helm()]).await;
    let download = helm().downloads().remove(0);
    let content = archive([("linux-amd64/LICENSE", b"x".to_vec())].into_iter());
    server.put(&download.checksums, hex::encode(sha2::Sha256::digest(&content)).into_bytes());
    server.put(&download.path, content);
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), server.mirror());
    let error = store.ensure(&[helm()], &NEVER, &Logged).await.unwrap_err().to_string();
    assert!(error.contains("it has no member linux-amd64/helm"), "{error}");
    assert!(!helm().dir(dir.path()).exists());
}

#[tokio::test]
async fn two_fetches_at_once_bring_it_once() {
    let server = Server::start(&[helm()]).await;
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (open(dir.path(), server.mirror()), open(dir.path(), server.mirror()));
    let wants = [helm()];
    let (a, b) = tokio::join!(a.ensure(&wants, &NEVER, &Logged), b.ensure(&wants, &NEVER, &Logged));
    let mut outcomes = [a.unwrap(), b.unwrap()].concat();
    outcomes.sort_by_key(|o| *o == Outcome::Present);
    assert_eq!(outcomes, [Outcome::Installed(Source::Fetched), Outcome::Present]);
    assert_eq!(server.ranges(&helm().downloads()[0].path).len(), 1);
}

#[tokio::test]
async fn a_folder_seeds_in_a_mirrors_layout_and_in_a_stores() {
    let (mirror, first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (path, content) in [helm(), runc()].iter().flat_map(published) {
        let path = mirror.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let from = |dir: &Path| Mode { seed: Some(dir.to_owned()), build: BuildMode::Never };
    let store = open(first.path(), Mirror::Upstream);
    let outcomes = store.ensure(&[helm(), runc()], &from(mirror.path()), &Logged).await.unwrap();
    assert_eq!(outcomes, [Outcome::Installed(Source::Seeded), Outcome::Installed(Source::Seeded)]);
    let again = open(second.path(), Mirror::Upstream);
    again.ensure(&[helm()], &from(first.path()), &Logged).await.unwrap();
    assert_eq!(std::fs::read(again.helm().unwrap()).unwrap(), program("helm"));

    std::fs::write(runc().dir(first.path()).join("runc"), program("evil")).unwrap();
    let error = again.ensure(&[runc()], &from(first.path()), &Logged).await.unwrap_err();
    assert!(matches!(error, AssetError::Checksum { .. }), "{error}");
    let error =
        again.ensure(&[Want::kubernetes(catalogue::default_version(), Arch::Amd64)], &from(mirror.path()), &Logged).await.unwrap_err();
    assert!(matches!(error, AssetError::NotFound { .. }), "{error}");
}

/// A file system of one megabyte.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tmpfs"), dir.path(), Some("tmpfs"), flags, Some("size=400k"))
            .expect("this test mounts a small disk: run it as root");
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount(self.0.path());
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_left_as_it_was() {
    let server = Server::start(&[runc()]).await;
    let disk = SmallDisk::mount();
    // 300 kB fit once, as the download; the program beside it does not.
    let error = fetch_runc(&server, disk.0.path(), &Steps::default()).await.unwrap_err();
    assert!(matches!(error, AssetError::DiskFull { .. }), "{error}");
    assert_eq!(tree(disk.0.path()), Vec::<String>::new());
    // Nor does the download itself, when something else takes the room.
    std::fs::write(disk.0.path().join("ballast"), vec![1; 200_000]).unwrap();
    let error = fetch_runc(&server, disk.0.path(), &Steps::default()).await.unwrap_err();
    assert!(error.to_string().contains("no room is left"), "{error}");
    assert_eq!(tree(disk.0.path()), ["ballast"]);
    assert_eq!(std::fs::metadata(disk.0.path().join("ballast")).unwrap().size(), 200_000);
}
