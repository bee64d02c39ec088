//! The shape of the source, held: who may import whom, how long a file may be, what modules may be called, and that the map in
//! `src/lib.rs` names every room. Each check is a function of text, and is itself tested on small texts that break it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What each room may import of ours; `cli` may import everything.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("store", &["domain"]),
    ("pki", &["domain"]),
    ("proxy", &["domain"]),
    ("image_archive", &[]),
    ("assets", &["domain", "image_archive"]),
    ("config", &["domain"]),
    ("runtime", &["domain"]),
    ("queue", &["domain", "store"]),
    ("process", &["domain"]),
    ("routes", &["domain"]),
    ("tunnel", &["domain", "store", "queue", "pki"]),
    ("engine", &["domain", "store", "queue", "pki", "process", "assets", "tunnel"]),
    ("node", &["domain", "pki", "process", "runtime", "tunnel", "routes", "image_archive"]),
    ("jobs", &["domain", "store", "queue", "pki", "proxy", "assets", "engine", "tunnel"]),
    ("api", &["domain", "store", "queue"]),
    ("doctor", &["domain", "config", "assets"]),
];
/// Rooms that may import everything.
const WIRES_EVERYTHING: &[&str] = &["cli"];
/// Files past this length give a reason in their doc (`long because ...`).
const LONG: usize = 600;
/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "shared"];

/// A source file: its path below `src/`, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The room that it belongs to: `store` of `store/sqlite/mod.rs`; `None` for `lib.rs` and `main.rs`.
    fn room(&self) -> Option<&str> {
        self.path
            .split_once('/')
            .map(|(room, _)| room)
            .or_else(|| self.path.strip_suffix(".rs"))
            .filter(|room| !matches!(*room, "lib" | "main"))
    }
}

/// The text without comments, strings and what stands behind `#[cfg(test)]`, line by line; enough to find paths in.
fn code_lines(text: &str) -> Vec<String> {
    let text = text.split_once("\n#[cfg(test)]\nmod ").map_or(text, |(code, _)| code);
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut code = String::new();
        let mut in_string = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if in_string => {
                    characters.next();
                }
                '"' => in_string = !in_string,
                '/' if !in_string && characters.peek() == Some(&'/') => break,
                _ if in_string => {}
                _ => code.push(character),
            }
        }
        lines.push(code);
    }
    lines
}

/// The rooms that a text names as `crate::ROOM` or in `crate::{ROOM, ...}`.
fn imports(text: &str) -> BTreeSet<String> {
    let code = code_lines(text).join("\n");
    let mut rooms = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = code[at + "crate::".len()..].trim_start();
        let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut item = String::new();
            for character in list.chars() {
                match character {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        rooms.insert(word(item.trim()));
                        item.clear();
                    }
                    _ if depth == 0 => item.push(character),
                    _ => {}
                }
            }
            rooms.insert(word(item.trim()));
        } else {
            rooms.insert(word(rest));
        }
    }
    rooms.remove("");
    rooms
}

/// Imports that the rules do not allow. Tests may set up more than their room may import.
fn forbidden_imports(source: &Source, rooms: &BTreeSet<String>) -> Vec<String> {
    if source.path.ends_with("/tests.rs") || source.path.contains("/tests/") {
        return Vec::new();
    }
    let Some(room) = source.room().filter(|room| !WIRES_EVERYTHING.contains(room)) else { return Vec::new() };
    let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == room) else {
        return vec![format!("src/{}: no rule says what {room} may import; add one to tests/architecture.rs", source.path)];
    };
    imports(&source.text)
        .into_iter()
        .filter(|import| rooms.contains(import) && import != room && !allowed.contains(&import.as_str()))
        .map(|import| format!("src/{}: {room} may not import {import}; it may import {allowed:?}", source.path))
        .collect()
}

/// The module's own page: its `//!` lines.
fn page(text: &str) -> String {
    text.lines().filter_map(|line| line.strip_prefix("//!")).collect::<Vec<_>>().join("\n")
}

/// What is wrong with a file's length, name or page.
fn shape(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    let lines = source.text.lines().count();
    if lines > LONG && !page(&source.text).contains("long because") {
        wrong.push(format!("src/{}: {lines} lines; split it, or say in its page why it is \"long because ...\"", source.path));
    }
    for part in source.path.trim_end_matches(".rs").split('/') {
        if EMPTY_NAMES.contains(&part) {
            wrong.push(format!("src/{}: {part} says nothing of what is inside; name it after that", source.path));
        }
    }
    if source.path.ends_with("mod.rs") && !source.text.starts_with("//!") {
        wrong.push(format!("src/{}: a module opens with its page (//!): what it is, what it guarantees, what it may import", source.path));
    }
    wrong
}

/// Rooms that are declared and not on the map, and rooms on the map that are not declared.
fn map_gaps(lib: &str) -> Vec<String> {
    let declared: BTreeSet<&str> = lib
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub mod ").or_else(|| line.trim().strip_prefix("mod "))?.strip_suffix(';'))
        .collect();
    let mapped: BTreeSet<&str> =
        lib.lines().filter_map(|line| line.strip_prefix("//! | [`")?.split_once('`').map(|(room, _)| room)).collect();
    let gap = |what: &'static str| move |room: &&str| format!("src/lib.rs: {room} {what}");
    declared
        .difference(&mapped)
        .map(gap("is not on the map"))
        .chain(mapped.difference(&declared).map(gap("is on the map and not there")))
        .collect()
}

fn sources() -> Vec<Source> {
    fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    let source = |path: PathBuf| Source {
        path: path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(),
        text: std::fs::read_to_string(path).unwrap(),
    };
    paths.into_iter().map(source).collect()
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn rooms_import_what_they_may() {
    let sources = sources();
    let rooms: BTreeSet<String> = sources.iter().filter_map(Source::room).map(str::to_owned).collect();
    assert!(rooms.len() > 10, "the source was found");
    assert_none(&sources.iter().flat_map(|source| forbidden_imports(source, &rooms)).collect::<Vec<_>>());
}

#[test]
fn files_are_short_and_well_named_and_open_with_their_page() {
    assert_none(&sources().iter().flat_map(shape).collect::<Vec<_>>());
}

#[test]
fn the_map_names_every_room() {
    let lib = sources().into_iter().find(|source| source.path == "lib.rs").unwrap();
    assert_none(&map_gaps(&lib.text));
}

/// Directives that give a service a mount namespace of its own: what the daemon mounts there would be lost to the next daemon.
const NAMESPACING: &[&str] = &[
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "PrivateDevices",
    "PrivateMounts",
    "PrivateUsers",
    "PrivateNetwork",
    "PrivateIPC",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectHostname",
    "ProtectProc",
    "ProcSubset",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "InaccessiblePaths",
    "ExecPaths",
    "NoExecPaths",
    "BindPaths",
    "BindReadOnlyPaths",
    "TemporaryFileSystem",
    "RootDirectory",
    "RootImage",
    "MountFlags",
    "MountAPIVFS",
    "DynamicUser",
    "LogNamespace",
];

fn directive<'a>(unit: &'a str, name: &str) -> Option<&'a str> {
    unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn the_unit_lets_control_planes_outlive_the_daemon() {
    let unit = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/kubebyon.service")).unwrap();
    for (name, value) in
        [("Type", "notify"), ("KillMode", "process"), ("Delegate", "yes"), ("RuntimeDirectoryPreserve", "yes"), ("Restart", "always")]
    {
        assert_eq!(directive(&unit, name), Some(value), "{name}");
    }
    let namespacing: Vec<_> = NAMESPACING.iter().filter(|name| directive(&unit, name).is_some()).collect();
    assert!(namespacing.is_empty(), "{namespacing:?} would take the daemon's mounts from the next daemon");
}

mod of_the_checks {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn rooms() -> BTreeSet<String> {
        MAY_IMPORT.iter().map(|(room, _)| (*room).to_owned()).chain(["cli".to_owned()]).collect()
    }

    fn import_problems(path: &str, text: &str) -> usize {
        forbidden_imports(&source(path, text), &rooms()).len()
    }

    #[test]
    fn imports_that_are_not_allowed_are_found() {
        for (path, text, count) in [
            ("domain/ids.rs", "use crate::store::Tx;", 1),
            ("domain/ids.rs", "use crate::domain::Name;", 0),
            ("store/mod.rs", "fn f() -> crate::queue::Job { x }", 1),
            ("store/mod.rs", "use crate::{domain::Name, queue, pki::{a, b}};", 2),
            ("store/mod.rs", "use crate::{\n    api::{State, v1::{x, y}},\n    domain,\n};", 1),
            ("store/mod.rs", "/// See [`crate::queue`].\n// crate::api\nlet x = \"crate::jobs\"; let url = \"http://crate::cli\";", 0),
            ("store/mod.rs", "pub(crate) fn f() {} use other_crate::queue::X;", 0),
            ("store/mod.rs", "mod a;\n#[cfg(test)]\nmod tests {\n    use crate::queue::X;\n}", 0),
            ("store/tests.rs", "use crate::queue::X;", 0),
            ("api/mod.rs", "use crate::engine::Engine; use crate::pki;", 2),
            ("cli/mod.rs", "use crate::engine::Engine; use crate::pki;", 0),
            ("lib.rs", "use crate::engine::Engine;", 0),
            ("config.rs", "use crate::runtime::x;", 1),
            ("novel/mod.rs", "", 1),
        ] {
            assert_eq!(import_problems(path, text), count, "{path}: {text}");
        }
    }

    #[test]
    fn a_bad_shape_is_found() {
        let long = "//! Page.\n".to_owned() + &"x\n".repeat(LONG);
        for (path, text, count) in [
            ("store/a.rs", long.as_str(), 1),
            ("store/a.rs", &long.replace("Page.", "A table, long because it is one."), 0),
            ("store/mod.rs", "//! Page.\n", 0),
            ("store/mod.rs", "mod a;\n", 1),
            ("store/a.rs", "mod a;\n", 0),
            ("store/utils.rs", "", 1),
            ("helpers/mod.rs", "//! Page.\n", 1),
            ("store/commonplace.rs", "", 0),
        ] {
            assert_eq!(shape(&source(path, text)).len(), count, "{path}");
        }
    }

    #[test]
    fn a_room_off_the_map_is_found() {
        assert!(map_gaps("//! | [`a`] | x |\npub mod a;\n").is_empty());
        assert_eq!(map_gaps("//! | [`a`] | x |\npub mod a;\npub mod b;\n"), ["src/lib.rs: b is not on the map"]);
        assert_eq!(map_gaps("//! | [`a`] | x |\n//! | [`c`] | x |\npub mod a;\n"), ["src/lib.rs: c is on the map and not there"]);
    }
}
