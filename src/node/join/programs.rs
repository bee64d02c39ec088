//! Programs and image archives: fetched in parts that go on where they were cut, checked by their SHA-256, moved into place whole.
//!
//! A file that is there already and right is left alone. Files of one content (a program that acts by the name it is called by) are fetched
//! once and linked. What is fetched stands beside its place meanwhile, noted in the journal.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::bundle;
use super::client::{Client, Refused};
use super::journal::{Journal, explain};
use super::plan::images_dir;
use crate::domain::join::{Joined, ProgramFile};
use crate::node::layout::Layout;
use crate::node::show::Show;

/// How often in a row a file may fail without a byte gained.
const ATTEMPTS: u32 = 5;
/// The largest file, in bytes.
const MAX_SIZE: u64 = 2 << 30;
/// The names by which a program of Kubernetes that is one for all is called on nodes.
const CALLED: [&str; 3] = ["kubelet", "kube-proxy", "kubectl"];

/// A file with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// What it is.
    pub file: ProgramFile,
    /// Where it goes.
    pub path: PathBuf,
    /// Its mode.
    pub mode: u32,
    /// Names beside it that lead to it.
    pub links: Vec<PathBuf>,
}

/// Where each file goes. `own_containerd`: whether the node runs a containerd of its own.
///
/// # Errors
/// The platform names what cannot be a file of ours.
pub fn places(joined: &Joined, layout: &Layout, own_containerd: bool) -> anyhow::Result<Vec<Placed>> {
    let mut placed: Vec<Placed> = Vec::new();
    let mut by_content: BTreeMap<(PathBuf, String), usize> = BTreeMap::new();
    for file in &joined.programs {
        check(file)?;
        let folder = match file.kind.as_str() {
            "cni-plugins" => layout.cni_bin_dir(),
            "containerd" | "runc" if !own_containerd && file.name != "ctr" => continue,
            "kubernetes" | "containerd" | "runc" | "kubebyon" => layout.bin_dir(),
            other => {
                tracing::debug!(kind = other, name = file.name, "a program of a kind that this version does not know is left out");
                continue;
            }
        };
        let path = folder.join(&file.name);
        if let Some(at) = by_content.get(&(folder.clone(), file.sha256.clone())) {
            placed[*at].links.push(path);
            continue;
        }
        let links =
            if file.kind == "kubernetes" && file.name == "kubernetes" { CALLED.map(|name| folder.join(name)).to_vec() } else { Vec::new() };
        by_content.insert((folder, file.sha256.clone()), placed.len());
        placed.push(Placed { file: file.clone(), path, mode: 0o755, links });
    }
    for one in &mut placed {
        one.links.sort();
        one.links.dedup();
        one.links.retain(|link| *link != one.path);
    }
    for file in &joined.images {
        check(file)?;
        placed.push(Placed { file: file.clone(), path: images_dir(layout).join(&file.name), mode: 0o600, links: Vec::new() });
    }
    Ok(placed)
}

/// What the platform says is still a stranger's word when it names files of root's.
fn check(file: &ProgramFile) -> anyhow::Result<()> {
    let plain =
        |text: &str| !text.is_empty() && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+".contains(&b));
    ensure!(plain(&file.name) && !file.name.starts_with('.'), "the platform names a file {:?}, which is no name of a program", file.name);
    let below_assets =
        file.path.strip_prefix("/assets/").is_some_and(|rest| rest.split('/').all(|part| plain(part) && !part.starts_with('.')));
    ensure!(below_assets, "the platform says that {} is at {:?}, which is not below /assets/", file.name, file.path);
    ensure!(file.size > 0 && file.size <= MAX_SIZE, "the platform says that {} has {} bytes", file.name, file.size);
    ensure!(file.sha256.len() == 64 && hex::decode(&file.sha256).is_ok(), "the platform gives no SHA-256 for {}", file.name);
    Ok(())
}

/// Brings every file into its place: out of `from` where a bundle is given, else from the platform.
///
/// # Errors
/// The disk is full, the platform cannot be reached, or a content is not the one that was promised. What came is kept for the next time.
pub async fn install(
    placed: &[Placed],
    client: &Client,
    from: Option<&Path>,
    journal: &mut Journal,
    show: &dyn Show,
) -> anyhow::Result<()> {
    let mut wanted = Vec::new();
    for one in placed {
        if is_right(&one.path, &one.file).await? && (journal.made_file(&one.path)) {
            continue;
        }
        wanted.push(one);
    }
    room(&wanted)?;
    for one in &wanted {
        journal.before_file(&partial(&one.path))?;
        journal.before_file(&one.path)?;
    }
    if let Some(bundle) = from {
        let files = wanted.iter().map(|one| (one.file.path.trim_start_matches('/').to_owned(), partial(&one.path))).collect();
        let bundle = bundle.to_owned();
        tokio::task::spawn_blocking(move || bundle::extract(&bundle, &files)).await.context("the bundle's reader ended")??;
    }
    for one in &wanted {
        if from.is_none() {
            fetch(client, &one.file, &partial(&one.path), show).await?;
        }
        put_in_place(one, from.is_some()).await?;
    }
    for one in placed {
        for link in &one.links {
            journal.link(link, Path::new(&one.file.name))?;
        }
    }
    Ok(())
}

async fn put_in_place(one: &Placed, from_bundle: bool) -> anyhow::Result<()> {
    let part = partial(&one.path);
    if !is_right(&part, &one.file).await? {
        let _ = std::fs::remove_file(&part);
        let whose = if from_bundle {
            "the bundle holds another content than the platform has"
        } else {
            "what came is not what the platform promised"
        };
        bail!("{}: {whose} (its SHA-256 is not {})", one.file.name, one.file.sha256);
    }
    let (path, mode) = (one.path.clone(), one.mode);
    let moved = move || -> std::io::Result<()> {
        std::fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        std::fs::rename(&part, &path)
    };
    moved().with_context(|| format!("cannot put {} in place", one.path.display()))
}

/// Beside the place, on the same file system.
fn partial(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.kubebyon-part", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// Fetches into `part`, going on where that ends.
async fn fetch(client: &Client, file: &ProgramFile, part: &Path, show: &dyn Show) -> anyhow::Result<()> {
    let mut failures = 0;
    let resumed = length(part) > 0;
    loop {
        let before = length(part).min(file.size);
        let outcome = if before < file.size { fetch_once(client, file, part, before, show).await } else { Ok(()) };
        match outcome {
            Ok(()) if length(part) >= file.size => {
                if resumed && failures == 0 && !is_right(part, file).await? {
                    show.note(&format!("{}: the part that was there did not fit; fetching it whole", file.name));
                    std::fs::remove_file(part).with_context(|| format!("cannot remove {}", part.display()))?;
                    return Box::pin(fetch(client, file, part, show)).await;
                }
                return Ok(());
            }
            Err(error) if is_final(&error) => return Err(error.context(format!("{} cannot be fetched", file.name))),
            outcome => {
                if length(part) > before {
                    failures = 0;
                }
                failures += 1;
                let why = outcome.err().map_or_else(|| "it ended early".to_owned(), |error| format!("{error:#}"));
                if failures >= ATTEMPTS {
                    bail!("{} cannot be fetched: {why}. What came is kept: run the same command again", file.name);
                }
                show.note(&format!("{}: {why}; going on", file.name));
                tokio::time::sleep(Duration::from_secs(1 << failures.min(4))).await;
            }
        }
    }
}

/// Whether asking again would bring the same.
fn is_final(error: &anyhow::Error) -> bool {
    let refused =
        error.downcast_ref::<Refused>().is_some_and(|refused| !refused.status.is_server_error() && refused.status.as_u16() != 429);
    refused || error.chain().any(<dyn std::error::Error>::is::<std::io::Error>)
}

async fn fetch_once(client: &Client, file: &ProgramFile, part: &Path, from: u64, show: &dyn Show) -> anyhow::Result<()> {
    let (mut response, start) = client.file(&file.path, from).await?;
    let context = || format!("cannot write {}", part.display());
    let mut target = tokio::fs::OpenOptions::new().create(true).append(true).open(part).await.map_err(explain).with_context(context)?;
    target.set_len(start).await.map_err(explain).with_context(context)?;
    let mut done = start;
    let ended = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                done += chunk.len() as u64;
                if done > file.size {
                    bail!("more comes than the {} bytes that were promised", file.size);
                }
                target.write_all(&chunk).await.map_err(explain).with_context(context)?;
                show.transfer(&file.name, done, file.size);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // What came is to be there for the next time, however this ended.
    target.flush().await.map_err(explain).with_context(context)?;
    target.sync_all().await.map_err(explain).with_context(context)?;
    ended.map_err(|error| anyhow::anyhow!("the connection broke off ({error})"))
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.len())
}

/// Whether a file is there with that content.
async fn is_right(path: &Path, file: &ProgramFile) -> anyhow::Result<bool> {
    if !path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() == file.size) {
        return Ok(false);
    }
    let owned = path.to_owned();
    let found = tokio::task::spawn_blocking(move || sha256(&owned)).await.context("hashing ended")?;
    Ok(found.with_context(|| format!("cannot read {}", path.display()))? == file.sha256.to_ascii_lowercase())
}

/// The SHA-256 of a file, in hex.
pub fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 17]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Whether there is room for what is to come, by file system.
fn room(wanted: &[&Placed]) -> anyhow::Result<()> {
    let mut needed: BTreeMap<u64, (u64, PathBuf)> = BTreeMap::new();
    for one in wanted {
        let Some(there) = one.path.ancestors().find(|folder| folder.is_dir()) else { continue };
        let device = std::os::unix::fs::MetadataExt::dev(&there.metadata().with_context(|| format!("cannot look at {}", there.display()))?);
        let rest = one.file.size.saturating_sub(length(&partial(&one.path)));
        needed.entry(device).or_insert((0, there.to_owned())).0 += rest;
    }
    for (need, folder) in needed.values() {
        let Ok(stat) = nix::sys::statvfs::statvfs(folder) else { continue };
        let free = stat.blocks_available() * stat.fragment_size();
        ensure!(
            free >= *need,
            "the disk of {} is too full: {} MiB are to come and {} MiB are free. Make room (`df -h {0}`), then run the same command again",
            folder.display(),
            need >> 20,
            free >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: &str, name: &str, sha: &str) -> ProgramFile {
        let (kind, name, path) = (kind.to_owned(), name.to_owned(), format!("/assets/{kind}/{name}"));
        ProgramFile { kind, version: "1".into(), name, path, size: 3, sha256: sha.repeat(32) }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        assert!(check(&file("runc", "runc", "ab")).is_ok());
        for (name, path) in [
            ("../runc", "/assets/runc"),
            (".runc", "/assets/runc"),
            ("a/b", "/assets/runc"),
            ("", "/assets/runc"),
            ("runc", "/api/v1/x"),
            ("runc", "/assets/../api"),
            ("runc", "/assets/"),
            ("runc", "/assets//runc"),
            ("runc", "https://other/assets/runc"),
        ] {
            let wrong = ProgramFile { name: name.into(), path: path.into(), ..file("runc", "runc", "ab") };
            assert!(check(&wrong).is_err(), "{name} {path}");
        }
        assert!(check(&ProgramFile { size: 0, ..file("runc", "runc", "ab") }).is_err());
        assert!(check(&ProgramFile { sha256: "zz".repeat(32), ..file("runc", "runc", "ab") }).is_err());
    }

    #[test]
    fn one_content_is_fetched_once() {
        let layout = Layout::below("/r");
        let joined = super::super::tests::joined(vec![
            file("kubernetes", "kubelet", "aa"),
            file("kubernetes", "kube-proxy", "aa"),
            file("kubernetes", "kubernetes", "cc"),
            file("containerd", "containerd", "dd"),
            file("containerd", "ctr", "ee"),
            file("cni-plugins", "bridge", "aa"),
            file("novelty", "x", "ff"),
        ]);
        let placed = places(&joined, &layout, true).unwrap();
        let seen: Vec<_> = placed.iter().map(|one| (one.path.to_str().unwrap(), one.links.len())).collect();
        let bin = |name: &str| format!("/r/opt/kubebyon/bin/{name}");
        let (kubelet, kubernetes, containerd, ctr) = (bin("kubelet"), bin("kubernetes"), bin("containerd"), bin("ctr"));
        let expected = [(kubelet.as_str(), 1), (&kubernetes, 3), (&containerd, 0), (&ctr, 0), ("/r/opt/cni/bin/bridge", 0)];
        assert_eq!(seen, expected);
        let foreign = places(&joined, &layout, false).unwrap();
        assert!(foreign.iter().any(|one| one.file.name == "ctr") && !foreign.iter().any(|one| one.file.name == "containerd"));
    }
}
