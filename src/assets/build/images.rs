//! The images of nodes: `pause`, compiled from the one C file that Kubernetes has for it, and CoreDNS, each packed as an archive.

use std::collections::BTreeMap;
use std::path::Path;

use super::finish_archive;
use super::go::Go;
use crate::assets::AssetError;
use crate::assets::catalogue::{self, PAUSE, Want};
use crate::assets::disk::{self, Staging};
use crate::assets::manifest::FileRecord;
use crate::assets::progress::ProgressSink;
use crate::image_archive::Image;

/// Where the source of `pause` is in Kubernetes' module.
const PAUSE_SOURCE: &str = "build/pause/linux/pause.c";

/// Packs the programs in `programs`, and `pause`, into the staging tree.
pub(super) async fn pack(
    want: &Want,
    programs: &Path,
    staging: &Staging,
    go: &Go,
    sink: &dyn ProgressSink,
) -> Result<BTreeMap<String, FileRecord>, AssetError> {
    let (module, version) = ("k8s.io/kubernetes", format!("v{}", catalogue::default_version()));
    let kubernetes = go.download(module, &version, &*sink.meter("modules of pause", None)).await?;
    let defines = [format!("-DVERSION=v{PAUSE}-kubebyon")];
    go.compile_c(&kubernetes.dir.join(PAUSE_SOURCE), &defines, &programs.join("pause")).await?;
    let image = |program: &str, reference: String| Image {
        reference,
        architecture: want.arch.name().to_owned(),
        entrypoint: vec![format!("/{program}")],
        files: vec![(program.into(), programs.join(program))],
    };
    let coredns = format!("github.com/coredns/coredns@v{} ({})", catalogue::COREDNS, go.version());
    let all = [
        ("pause.tar", image("pause", catalogue::pause_image()), format!("{module}@{version} {PAUSE_SOURCE}")),
        ("coredns.tar", image("coredns", catalogue::coredns_image()), coredns),
    ];
    let mut files = BTreeMap::new();
    for (name, image, origin) in all {
        let path = staging.tree().join(name);
        image.write(&path).map_err(|e| AssetError::io(&path, e))?;
        files.insert(name.to_owned(), finish_archive(&path, origin)?);
    }
    disk::remove_dir(programs)?;
    Ok(files)
}
