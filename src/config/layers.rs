//! The layers of a configuration, gathered into one value for each key: the file, then the environment, then flags.
//!
//! Keys are told known from unknown here; what a value means is decided in `decode`. May import: nothing of ours.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{Origin, Problem};
use super::keys;
use super::yaml::{self, Node, Place, Value};
use super::{DEFAULT_FILE, LoadOptions};

/// The prefix of variables that are looked at.
const PREFIX: &str = "KUBEBYON_";
/// Variables of the command line's client, which are no configuration.
const CLIENT: [&str; 3] = ["KUBEBYON_SERVER", "KUBEBYON_TOKEN", "KUBEBYON_JOIN_TOKEN"];
/// The most that a file may hold, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A value as it was given.
#[derive(Debug, Clone)]
pub enum Given {
    /// In the file.
    Node(Node),
    /// As text, by a variable or a flag.
    Text(String),
}

/// A key's value and where it was given.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where.
    pub origin: Origin,
    /// What.
    pub given: Given,
}

/// What the layers say together.
#[derive(Debug, Default)]
pub struct Layers {
    /// By dotted key.
    pub entries: BTreeMap<String, Entry>,
    /// Where the parts of values stand (`passthrough[0].host`).
    pub places: BTreeMap<String, Origin>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

/// Reads every layer.
pub fn read(options: &LoadOptions) -> (Layers, Vec<Problem>) {
    let (mut layers, mut problems) = (Layers::default(), Vec::new());
    let path = options.file.clone().or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()));
    if let Some(path) = path {
        file(&path, &mut layers, &mut problems);
        layers.file = Some(path);
    }
    environment(&options.environment, &mut layers, &mut problems);
    flags(&options.flags, &mut layers, &mut problems);
    (layers, problems)
}

fn file(path: &Path, layers: &mut Layers, problems: &mut Vec<Problem>) {
    let whole = Origin::place(path, Place { line: 0, column: 0 });
    let mut refuse = |origin: Origin, message: String| problems.push(Problem { origin: Some(origin), key: String::new(), message });
    let text = match read_text(path) {
        Ok(text) => text,
        Err(message) => return refuse(whole, message),
    };
    match yaml::parse(&text) {
        Err(e) => refuse(Origin::place(path, e.at), format!("this is no YAML: {}", e.message)),
        Ok(None) => {}
        Ok(Some(node)) if node.is_null() => {}
        Ok(Some(node)) => match node.value {
            Value::Mapping(entries) => walk(path, "", entries, layers, problems),
            _ => refuse(Origin::place(path, node.at), "the file must hold keys, such as `data_dir: /var/lib/kubebyon`".to_owned()),
        },
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such file; give --config the right path, or leave it out".to_owned(),
        _ => format!("the file cannot be read: {e}"),
    })?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| format!("the file cannot be read: {e}"))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err("the file holds more than 1 MiB; no configuration is that long".to_owned());
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        format!("line {line} holds bytes that are no UTF-8")
    })
}

fn walk(path: &Path, prefix: &str, entries: Vec<(String, Place, Node)>, layers: &mut Layers, problems: &mut Vec<Problem>) {
    for (name, at, node) in entries {
        let key = format!("{prefix}{name}");
        let origin = Origin::place(path, at);
        match keys::find(&key) {
            None => problems.push(Problem { origin: Some(origin), message: keys::unknown_message(&key), key }),
            // A key with nothing behind it stays at its default.
            Some(_) if node.is_null() => {}
            Some(found) if found.is_section => {
                if let Value::Mapping(inner) = node.value {
                    walk(path, &format!("{key}."), inner, layers, problems);
                } else {
                    let message = "this is a section; its keys stand below it, indented".to_owned();
                    problems.push(Problem { origin: Some(Origin::place(path, node.at)), key, message });
                }
            }
            Some(_) => {
                note_places(path, &key, &node, &mut layers.places);
                layers.entries.insert(key, Entry { origin: Origin::place(path, node.at), given: Given::Node(node) });
            }
        }
    }
}

/// Remembers where the parts of a value stand.
fn note_places(path: &Path, key: &str, node: &Node, places: &mut BTreeMap<String, Origin>) {
    let mut note = |key: String, part: &Node| {
        places.insert(key.clone(), Origin::place(path, part.at));
        note_places(path, &key, part, places);
    };
    match &node.value {
        Value::List(items) => items.iter().enumerate().for_each(|(index, item)| note(format!("{key}[{index}]"), item)),
        Value::Mapping(entries) => entries.iter().for_each(|(name, _, item)| note(format!("{key}.{name}"), item)),
        Value::Scalar { .. } => {}
    }
}

fn environment(variables: &[(String, String)], layers: &mut Layers, problems: &mut Vec<Problem>) {
    let mut variables: Vec<_> = variables.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    variables.sort();
    for (name, value) in variables {
        // An empty variable is what compose files and shells leave of one that is not set.
        if CLIENT.contains(&name.as_str()) || value.is_empty() {
            continue;
        }
        let key = name[PREFIX.len()..].to_ascii_lowercase().replace("__", ".");
        text(key, value, Origin::Environment(name.clone()), layers, problems);
    }
}

fn flags(flags: &[(String, String)], layers: &mut Layers, problems: &mut Vec<Problem>) {
    for (key, value) in flags {
        let name = if key == "roles" { "--role".to_owned() } else { format!("--{}", key.replace('_', "-")) };
        text(key.clone(), value, Origin::Flag(name), layers, problems);
    }
}

fn text(key: String, value: &str, origin: Origin, layers: &mut Layers, problems: &mut Vec<Problem>) {
    let message = match keys::find(&key) {
        Some(found) if !found.is_section => {
            let parts = format!("{key}[");
            let inner = format!("{key}.");
            layers.places.retain(|path, _| !path.starts_with(&parts) && !path.starts_with(&inner));
            layers.entries.insert(key, Entry { origin, given: Given::Text(value.to_owned()) });
            return;
        }
        Some(_) => match (&origin, keys::ALL.iter().find(|inner| inner.path.starts_with(&format!("{key}.")) && !inner.is_section)) {
            (Origin::Environment(_), Some(inner)) => {
                format!("this is a section; name one of its keys, such as {PREFIX}{}", inner.path.replace('.', "__").to_ascii_uppercase())
            }
            _ => "this is a section; name one of its keys".to_owned(),
        },
        None => unknown_variable(&key, &origin),
    };
    problems.push(Problem { origin: Some(origin), key, message });
}

fn unknown_variable(key: &str, origin: &Origin) -> String {
    let Origin::Environment(name) = origin else { return keys::unknown_message(key) };
    let of_a_service =
        name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") || name.ends_with("_PORT") || name.contains("_PORT_");
    if of_a_service {
        return "there is no such key; Kubernetes sets such variables for Services: give the pod enableServiceLinks: false".to_owned();
    }
    match keys::nearest(key) {
        Some(near) => {
            let variable = format!("{PREFIX}{}", near.replace('.', "__").to_ascii_uppercase());
            format!("there is no such key; did you mean {near} ({variable})?")
        }
        None => keys::unknown_message(key),
    }
}
