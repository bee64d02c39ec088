//! Building programs out of their Go modules, where no mirror can be reached.
//!
//! A small module of our own names the modules and their versions; the ordinary `GOPROXY`, checksum database and build cache
//! do the rest. What is built says its version before it is accepted.

mod go;
mod images;
mod recipe;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::catalogue::{Arch, Kind, Want};
use super::disk::{self, Staging};
use super::manifest::{FileRecord, Manifest, Source};
use super::progress::ProgressSink;
use super::{AssetError, build::go::Go, build::recipe::Recipe};

/// Whether programs may be built from Go modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum BuildMode {
    /// When the mirror is out of reach, and Go is there.
    #[default]
    Auto,
    /// Instead of fetching.
    Always,
    /// Not at all.
    Never,
}

/// Builds `want` into the staging tree.
pub(super) async fn build(want: &Want, staging: &Staging, sink: &dyn ProgressSink) -> Result<Manifest, AssetError> {
    let recipe = Recipe::of(want)?;
    let dir = staging.scratch("build");
    disk::remove_dir(&dir)?;
    disk::make_dir(&dir)?;
    let go = Go::find(&dir, staging.scratch("build.log"), want.arch, recipe.cgo).await?;
    if recipe.cgo {
        go.check_c_toolchain().await?;
    }
    sink.step(&format!("{want}: building with {}; the first time takes minutes", go.version()));
    let (module, version) = (recipe.modules[0].0, &recipe.modules[0].1);
    let primary = go.download(module, version, &*sink.meter(&format!("modules of {want}"), None)).await?.go_mod()?;
    write(&dir.join("go.mod"), &recipe.go_mod(&primary))?;
    if let Some(main) = recipe.main {
        write(&dir.join("main.go"), main)?;
    }
    let tree = if want.kind == Kind::Images { staging.scratch("programs") } else { staging.tree() };
    disk::make_dir(&tree)?;
    let mut files = BTreeMap::new();
    for program in &recipe.programs {
        let meter = sink.meter(&format!("{} {}", program.file, want.version), None);
        let target = tree.join(program.file);
        go.build(program.package, &recipe, &target, &*meter).await?;
        let origin = format!("{module}@{version} ({})", go.version());
        files.insert(program.file.to_owned(), finish(&target, origin)?);
    }
    link(&recipe, &tree, &mut files)?;
    if want.arch == Arch::host() {
        for (program, args, expected) in &recipe.says {
            go.check_says(&tree.join(program), args, expected).await?;
        }
    }
    if want.kind == Kind::Images {
        files = images::pack(want, &tree, staging, &go, sink).await?;
    }
    Ok(Manifest::new(want, files))
}

/// The names of a program that acts by the name it is called by.
fn link(recipe: &Recipe, tree: &Path, files: &mut BTreeMap<String, FileRecord>) -> Result<(), AssetError> {
    for name in recipe.links {
        let target = recipe.programs[0].file;
        let place = tree.join(name);
        symlink(target, &place).map_err(|e| AssetError::io(&place, e))?;
        let record = FileRecord { link: Some(target.to_owned()), stamp: None, ..files[target].clone() };
        files.insert((*name).to_owned(), record);
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), AssetError> {
    fs::write(path, text).map_err(|e| AssetError::io(path, e))
}

/// Makes a built program last, and records it.
fn finish(path: &Path, origin: String) -> Result<FileRecord, AssetError> {
    let done = || {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        fs::File::open(path)?.sync_all()?;
        disk::hash_file(path)
    };
    let (sha256, size) = done().map_err(|e| AssetError::io(path, e))?;
    Ok(FileRecord { sha256, size, source: Source::Built, origin, link: None, stamp: None })
}

/// Makes an archive last that programs read and nobody runs, and records it.
fn finish_archive(path: &Path, origin: String) -> Result<FileRecord, AssetError> {
    let record = finish(path, origin)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(|e| AssetError::io(path, e))?;
    Ok(record)
}
