//! From the given values to the typed [`Config`]: each key is tried by itself on top of the defaults, so that a mistake in one
//! hides none in another. May import: nothing of ours.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::Config;
use super::error::{Origin, Origins, Problem};
use super::layers::{Entry, Given};
use super::yaml::{self, Node, Value};

/// Decodes every entry; what is wrong stays at its default and is reported.
pub fn decode(entries: BTreeMap<String, Entry>, places: BTreeMap<String, Origin>, problems: &mut Vec<Problem>) -> (Config, Origins) {
    let defaults = serde_json::to_value(Config::default()).expect("a configuration is plain JSON");
    let mut whole = defaults.clone();
    let mut origins = places;
    for (key, Entry { origin, given }) in entries {
        let is_list = at(&defaults, &key).is_some_and(Json::is_array);
        let attempts = match &given {
            Given::Node(node) => attempts_of_node(node),
            Given::Text(text) => attempts_of_text(text, is_list),
        };
        origins.insert(key.clone(), origin);
        match first_that_fits(&defaults, &key, &attempts) {
            Ok(value) => put(&mut whole, &key, value),
            Err(message) => {
                let mut wrong = if is_list { wrong_elements(&defaults, &key, &attempts) } else { Vec::new() };
                if wrong.is_empty() {
                    wrong.push((key, message));
                }
                let known = Origins(std::mem::take(&mut origins));
                problems.extend(wrong.into_iter().map(|(key, message)| Problem { origin: known.of(&key).cloned(), key, message }));
                origins = known.0;
            }
        }
    }
    let config = serde_json::from_value(whole).unwrap_or_else(|e| {
        // Each key fitted by itself, so that all fit together; were a type to look at two keys at once, this would tell.
        problems.push(Problem { origin: None, key: String::new(), message: e.to_string() });
        Config::default()
    });
    (config, Origins(origins))
}

/// What a node may mean: by the core schema, or, without quotes, the very text (`kubernetes_version: 1.34`).
fn attempts_of_node(node: &Node) -> Vec<Json> {
    if let Value::Scalar { text, plain: true } = &node.value {
        return both(node.to_json(), text);
    }
    let mut texts = node.clone();
    quote(&mut texts);
    let (typed, texts) = (node.to_json(), texts.to_json());
    if typed == texts { vec![typed] } else { vec![typed, texts] }
}

/// Turns scalars without quotes into text, all the way down.
fn quote(node: &mut Node) {
    match &mut node.value {
        Value::Scalar { plain, .. } => *plain = false,
        Value::List(items) => items.iter_mut().for_each(quote),
        Value::Mapping(entries) => entries.iter_mut().for_each(|(_, _, node)| quote(node)),
    }
}

/// What a variable or a flag may mean: YAML, or the very text; for a list also words between commas.
fn attempts_of_text(text: &str, is_list: bool) -> Vec<Json> {
    let node = yaml::parse(text).ok().flatten();
    if let Some(node) = &node
        && matches!(node.value, Value::List(_) | Value::Mapping(_))
    {
        let mut attempts = attempts_of_node(node);
        attempts.push(text.into());
        return attempts;
    }
    if is_list {
        let words: Vec<Json> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Json::from).collect();
        return vec![words.into()];
    }
    both(node.map_or_else(|| text.into(), |node| node.to_json()), text)
}

fn both(typed: Json, text: &str) -> Vec<Json> {
    if typed.is_string() || typed.is_null() { vec![text.into()] } else { vec![typed, text.into()] }
}

fn first_that_fits(defaults: &Json, key: &str, attempts: &[Json]) -> Result<Json, String> {
    let mut refusals = Vec::new();
    for attempt in attempts {
        match fits(defaults, key, attempt) {
            Ok(()) => return Ok(attempt.clone()),
            Err(message) => refusals.push((message, attempt)),
        }
    }
    // A type's own sentence says more than that another kind of value was expected.
    let best = refusals.iter().find(|(message, _)| !message.starts_with("invalid type")).or(refusals.first());
    Err(best.map_or_else(String::new, |(message, attempt)| explain(key, message, attempt)))
}

fn fits(defaults: &Json, key: &str, value: &Json) -> Result<(), String> {
    let mut candidate = defaults.clone();
    put(&mut candidate, key, value.clone());
    serde_json::from_value::<Config>(candidate).map(drop).map_err(|e| e.to_string())
}

/// Which elements of a list are wrong, each tried alone.
fn wrong_elements(defaults: &Json, key: &str, attempts: &[Json]) -> Vec<(String, String)> {
    let lists: Vec<&Vec<Json>> = attempts.iter().filter_map(Json::as_array).collect();
    let length = lists.first().map_or(0, |list| list.len());
    let wrong = |index: usize| {
        let alone: Vec<Json> = lists.iter().filter_map(|list| list.get(index)).map(|item| vec![item.clone()].into()).collect();
        first_that_fits(defaults, key, &alone).err().map(|message| (format!("{key}[{index}]"), message))
    };
    (0..length).filter_map(wrong).collect()
}

/// serde's words as a sentence for somebody who edits a file.
fn explain(key: &str, message: &str, value: &Json) -> String {
    let message = message.strip_prefix("spec.kubernetes_version: ").unwrap_or(message);
    let shown = match value {
        Json::Array(items) if items.len() == 1 => items[0].to_string(),
        other => other.to_string(),
    };
    let shown = if shown.len() > 80 { "this".to_owned() } else { shown };
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let (_, choices) = rest.split_once("expected ").unwrap_or(("", rest));
        let choices = choices.strip_prefix("one of ").unwrap_or(choices).replace('`', "").replace(" or ", ", ");
        return format!("{shown} is none of the words that are known here; use one of: {choices}");
    }
    if message == "invalid IP address syntax" {
        let looks = if key == "dns.resolvers" {
            "no IP address; it looks like 192.0.2.53"
        } else {
            "no range of addresses; it looks like 10.0.0.0/8"
        };
        return format!("{shown} is {looks}");
    }
    if let Some((_, expected)) = message.split_once(", expected ").filter(|(kind, _)| kind.starts_with("invalid ")) {
        return format!("{shown} is not what belongs here; expected is {}", in_words(expected));
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("{} is missing", rest.replace('`', ""));
    }
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return format!("there is no {}", rest.replace('`', "").replace(", expected", "; there is"));
    }
    let given = value.as_str().unwrap_or(&shown);
    if message.contains(given) || shown == "this" { message.to_owned() } else { format!("{shown} is wrong: {message}") }
}

fn in_words(expected: &str) -> String {
    match expected {
        "a boolean" => "true or false, without quotes".into(),
        "u8" => "a whole number from 0 to 255".into(),
        "u16" => "a whole number from 0 to 65535".into(),
        "u32" => "a whole number from 0 to 4294967295".into(),
        "a string" | "path string" => "text".into(),
        "a sequence" => "a list, such as [a, b]".into(),
        "a map" => "keys with values, such as {a: b}".into(),
        other if other.starts_with("struct ") => "keys with values, such as {a: b}".into(),
        other => other.to_owned(),
    }
}

fn at<'a>(root: &'a Json, key: &str) -> Option<&'a Json> {
    key.split('.').try_fold(root, |node, name| node.get(name))
}

fn put(root: &mut Json, key: &str, value: Json) {
    let mut node = root;
    for name in key.split('.') {
        node = &mut node[name];
    }
    *node = value;
}
