//! What stands in the store is either right or told.

use super::mirror::{Server, program};
use super::*;

async fn with_helm() -> (tempfile::TempDir, Server) {
    let server = Server::start(&[helm()]).await;
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), server.mirror()).ensure(&[helm()], &NEVER, &Logged).await.unwrap();
    (dir, server)
}

fn manifest(dir: &Path) -> Manifest {
    Manifest::read(&helm().dir(dir)).unwrap().unwrap()
}

#[tokio::test]
async fn a_changed_program_is_noticed_and_replaced() {
    let (dir, server) = with_helm().await;
    let path = helm().dir(dir.path()).join("helm");
    let mut content = program("helm");
    content[5] ^= 1;
    std::fs::write(&path, &content).unwrap();
    let store = open(dir.path(), server.mirror());
    let error = store.helm().unwrap_err().to_string();
    assert!(error.contains("is damaged (helm: its SHA-256 is"), "{error}");
    assert!(error.ends_with("run `kubebyon assets fetch --helm`"), "{error}");
    std::fs::write(&path, b"short").unwrap();
    assert!(store.helm().unwrap_err().to_string().contains("it has 5 bytes instead of 300000"));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/bin/true", &path).unwrap();
    assert!(store.helm().unwrap_err().to_string().contains("it is no file"));

    let steps = Steps::default();
    store.ensure(&[helm()], &NEVER, &steps).await.unwrap();
    assert!(steps.text().contains("it is replaced"), "{}", steps.text());
    assert_eq!(std::fs::read(store.helm().unwrap()).unwrap(), program("helm"));
}

#[tokio::test]
async fn a_folder_without_a_whole_manifest_is_no_item() {
    let (dir, server) = with_helm().await;
    let store = open(dir.path(), server.mirror());
    let path = helm().dir(dir.path()).join("manifest.json");
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let error = store.helm().unwrap_err().to_string();
        assert!(error.contains("cut short or changed"), "{cut}: {error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(store.helm().unwrap_err().to_string().contains("has no manifest.json"));
    store.ensure(&[helm()], &NEVER, &Logged).await.unwrap();
    assert!(store.helm().is_ok());
}

#[tokio::test]
async fn manifests_cannot_lead_out_of_their_folder() {
    let (dir, server) = with_helm().await;
    let store = open(dir.path(), server.mirror());
    let path = helm().dir(dir.path()).join("manifest.json");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, whole.replace("\"helm\": {", "\"../helm\": {")).unwrap();
    assert!(store.helm().unwrap_err().to_string().contains("is no name of a program"));
    std::fs::write(&path, whole.replace("4.3.1", "4.3.0")).unwrap();
    assert!(store.helm().unwrap_err().to_string().contains("its manifest is of something else"));
}

#[tokio::test]
async fn a_store_that_was_copied_is_hashed_once() {
    let (dir, server) = with_helm().await;
    let before = manifest(dir.path());
    // A new inode with the same content, as after a restore from a backup.
    let path = helm().dir(dir.path()).join("helm");
    std::fs::copy(&path, path.with_extension("new")).unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    let store = open(dir.path(), server.mirror());
    assert!(store.helm().is_ok());
    let after = manifest(dir.path());
    assert_ne!(before, after, "the new stamp is recorded");
    assert_eq!(before.files["helm"].sha256, after.files["helm"].sha256);
    assert!(store.helm().is_ok());
    assert_eq!(manifest(dir.path()), after);
}

#[test]
fn names_of_one_program_are_links_within_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let want = Want::kubernetes(catalogue::default_version(), Arch::Amd64);
    let staging = disk::Staging::begin(dir.path(), &want).unwrap();
    let (sha256, size) = disk::write_program(&staging.tree().join("kubernetes"), &mut program("all").as_slice()).unwrap();
    let one = FileRecord { sha256, size, source: Source::Built, origin: "here".into(), link: None, stamp: None };
    let mut files = std::collections::BTreeMap::from([("kubernetes".to_owned(), one.clone())]);
    for name in want.kind.programs() {
        std::os::unix::fs::symlink("kubernetes", staging.tree().join(name)).unwrap();
        files.insert((*name).to_owned(), FileRecord { link: Some("kubernetes".into()), ..one.clone() });
    }
    staging.commit(&mut Manifest::new(&want, files)).unwrap();
    let store = open(dir.path(), Mirror::Upstream);
    let folder = store.installed(&want).unwrap();
    assert_eq!(std::fs::read(folder.join("kubectl")).unwrap(), program("all"));

    // Seeding keeps the links.
    let other = tempfile::tempdir().unwrap();
    let mode = Mode { seed: Some(dir.path().to_owned()), build: BuildMode::Never };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(open(other.path(), Mirror::Upstream).ensure(std::slice::from_ref(&want), &mode, &Logged)).unwrap();
    assert_eq!(std::fs::read_link(want.dir(other.path()).join("kubelet")).unwrap(), Path::new("kubernetes"));

    std::fs::remove_file(folder.join("kubelet")).unwrap();
    std::os::unix::fs::symlink("/bin/true", folder.join("kubelet")).unwrap();
    assert!(store.installed(&want).unwrap_err().to_string().contains("kubelet: it does not lead to kubernetes"));
}

#[tokio::test]
async fn deep_verification_trusts_no_stamp() {
    let (dir, server) = with_helm().await;
    let path = helm().dir(dir.path()).join("manifest.json");
    let record = manifest(dir.path()).files["helm"].sha256.clone();
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap().replace(&record, &"0".repeat(64))).unwrap();
    let store = open(dir.path(), server.mirror());
    let state = |deep| store.verify_all(deep).into_iter().find(|s| s.want == helm()).unwrap().state;
    assert_eq!(state(false), State::Ready);
    assert!(matches!(state(true), State::Damaged(_)));
}

#[tokio::test]
async fn while_another_process_holds_the_lock_nothing_is_recorded_and_all_can_be_read() {
    let (dir, server) = with_helm().await;
    let path = helm().dir(dir.path()).join("helm");
    std::fs::copy(&path, path.with_extension("new")).unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    let before = manifest(dir.path());
    let lock = disk::Lock::try_take(dir.path()).unwrap().unwrap();
    let store = open(dir.path(), server.mirror());
    assert!(store.helm().is_ok());
    assert_eq!(manifest(dir.path()), before);
    let steps = Steps::default();
    assert_eq!(store.ensure(&[helm()], &NEVER, &steps).await.unwrap(), [Outcome::Present]);
    drop(lock);
    assert_eq!(steps.text(), "", "what is there needs no lock");
}

#[test]
fn the_list_has_the_whole_catalogue_and_what_is_there_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Mirror::Upstream);
    assert_eq!(store.list().len(), Want::all(Arch::Amd64).len());
    assert!(store.list().iter().all(|s| s.state == State::Missing));
    let foreign = Want::helm(Arch::Arm64);
    std::fs::create_dir_all(foreign.dir(dir.path())).unwrap();
    let list = store.list();
    let found = list.iter().find(|s| s.want == foreign).unwrap();
    assert!(matches!(&found.state, State::Damaged(reason) if reason.contains("no manifest.json")));
    assert_eq!(found.want.remedy(), "kubebyon assets fetch --helm --arch arm64");
}
