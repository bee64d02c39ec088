//! YAML as a tree in which every key and value knows its line and column.
//!
//! The events come from `granit-parser`, which `serde-saphyr` brings along. Deserialising straight into the types would
//! end at the first mistake and lose the places of the others; figment's and config-rs' values know no lines at all.
//! Guarantees: no input panics, and size, depth and aliases are bounded. May import: nothing of ours.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

/// The most nodes that a document may hold once its aliases are followed; a real file has a few hundred.
const MAX_NODES: usize = 20_000;
/// How deeply collections may stand in each other.
const MAX_DEPTH: usize = 32;

/// A place in a file, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Place {
    fn of(span: &Span) -> Self {
        Self { line: span.start.line(), column: span.start.col() + 1 }
    }
}

/// Why a text is no YAML that is understood here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// Where.
    pub at: Place,
    /// What is wrong.
    pub message: String,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub at: Place,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A scalar; `plain` when it stands without quotes and so may mean a number or a truth value.
    Scalar {
        /// Its text.
        text: String,
        /// Whether it stands without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// Keys, each with its place, in the order of the file.
    Mapping(Vec<(String, Place, Node)>),
}

impl Node {
    /// Whether it holds keys.
    pub const fn is_mapping(&self) -> bool {
        matches!(self.value, Value::Mapping(_))
    }

    /// Whether nothing is given: an empty plain scalar, `~` or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The node as JSON by YAML's core schema (<https://yaml.org/spec/1.2.2/#103-core-schema>), decimal numbers only.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            _ if self.is_null() => serde_json::Value::Null,
            Value::Scalar { text, plain: true } => plain_scalar(text),
            Value::Scalar { text, plain: false } => text.clone().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Mapping(entries) => entries.iter().map(|(key, _, node)| (key.clone(), node.to_json())).collect(),
        }
    }

    fn weight(&self) -> usize {
        match &self.value {
            Value::Scalar { .. } => 1,
            Value::List(items) => 1 + items.iter().map(Self::weight).sum::<usize>(),
            Value::Mapping(entries) => 1 + entries.iter().map(|(_, _, node)| 1 + node.weight()).sum::<usize>(),
        }
    }
}

fn plain_scalar(text: &str) -> serde_json::Value {
    match text {
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let looks_like_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
    if looks_like_number {
        if let Ok(number) = text.parse::<u64>() {
            return number.into();
        }
        if let Ok(number) = text.parse::<i64>() {
            return number.into();
        }
        if let Some(number) = text.parse().ok().and_then(serde_json::Number::from_f64) {
            return serde_json::Value::Number(number);
        }
    }
    text.into()
}

/// Reads one document; `None` when it is empty.
pub fn parse(text: &str) -> Result<Option<Node>, YamlError> {
    let mut reader = Reader { events: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0, last: Place { line: 1, column: 1 } };
    let mut root = None;
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(root),
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            _ if root.is_some() => return Err(YamlError { at, message: "a second document begins; one file holds one document".into() }),
            event => root = Some(reader.node(event, at, 0)?),
        }
    }
}

struct Reader<'input> {
    events: Parser<'input, serde_saphyr::granit_parser::StrInput<'input>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    last: Place,
}

impl<'input> Reader<'input> {
    fn next(&mut self) -> Result<(Event<'input>, Place), YamlError> {
        loop {
            match self.events.next() {
                None => return Ok((Event::StreamEnd, self.last)),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok((event, span))) => {
                    self.last = Place::of(&span);
                    return Ok((event, self.last));
                }
                Some(Err(e)) => {
                    let at = Place { line: e.marker().line(), column: e.marker().col() + 1 };
                    return Err(YamlError { at, message: e.info() });
                }
            }
        }
    }

    fn count(&mut self, nodes: usize, at: Place) -> Result<(), YamlError> {
        self.nodes += nodes;
        let message = || format!("more than {MAX_NODES} values; no configuration is that long");
        if self.nodes > MAX_NODES { Err(YamlError { at, message: message() }) } else { Ok(()) }
    }

    fn node(&mut self, event: Event<'input>, at: Place, depth: usize) -> Result<Node, YamlError> {
        self.count(1, at)?;
        if depth > MAX_DEPTH {
            return Err(YamlError { at, message: format!("more than {MAX_DEPTH} levels deep") });
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                (Value::Scalar { text: text.into_owned(), plain }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (Value::List(self.list(depth)?), anchor),
            Event::MappingStart(_, anchor, _) => (Value::Mapping(self.mapping(depth)?), anchor),
            Event::Alias(anchor) => {
                let message = || "this alias stands inside of what it names".to_owned();
                let node = self.anchors.get(&anchor).cloned().ok_or_else(|| YamlError { at, message: message() })?;
                self.count(node.weight(), at)?;
                return Ok(Node { at, value: node.value });
            }
            _ => return Err(YamlError { at, message: "a value is expected here".into() }),
        };
        let node = Node { at, value };
        if anchor != 0 {
            self.count(node.weight(), at)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => items.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Vec<(String, Place, Node)>, YamlError> {
        let mut entries: Vec<(String, Place, Node)> = Vec::new();
        loop {
            let (event, at) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(text, ..) if text == "<<" => {
                    return Err(YamlError { at, message: "merge keys (<<) are not understood; write the keys out".into() });
                }
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(YamlError { at, message: "a key must be plain text".into() }),
            };
            if let Some((_, first, _)) = entries.iter().find(|(known, _, _)| *known == key) {
                return Err(YamlError { at, message: format!("{key} is given twice; first in line {}", first.line) });
            }
            let (event, value_at) = self.next()?;
            let node = self.node(event, value_at, depth + 1)?;
            entries.push((key, at, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> serde_json::Value {
        parse(text).unwrap().map_or(serde_json::Value::Null, |node| node.to_json())
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        let read = json("a: 1\nb: -2\nc: 1.5\nd: true\ne: 'true'\nf: yes\ng: ~\nh: 0x10\ni: [1, x]\nj: 30000-32767\nk: ''\nl: .inf");
        let expected = serde_json::json!({"a": 1, "b": -2, "c": 1.5, "d": true, "e": "true", "f": "yes", "g": null, "h": "0x10",
            "i": [1, "x"], "j": "30000-32767", "k": "", "l": ".inf"});
        assert_eq!(read, expected);
        assert_eq!(json(""), serde_json::Value::Null);
        assert_eq!(json("# only a comment\n"), serde_json::Value::Null);
    }

    #[test]
    fn places_are_those_of_the_file() {
        let root = parse("log:\n  level: debug\n").unwrap().unwrap();
        let Value::Mapping(top) = root.value else { panic!("no mapping") };
        let Value::Mapping(log) = &top[0].2.value else { panic!("no mapping") };
        assert_eq!((log[0].1, log[0].2.at), (Place { line: 2, column: 3 }, Place { line: 2, column: 10 }));
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        for (text, line, part) in [
            ("a: 1\na: 2", 2, "given twice"),
            ("a: 1\n---\nb: 2", 3, "second document"),
            ("a: 1\n  b: 2", 2, ""),
            ("a: [1", 1, ""),
            ("x: &x [*x]", 1, ""),
            ("a: 1\n<<: {b: 1}", 2, "merge keys"),
            ("? [a]\n: 1", 1, "plain text"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(!e.message.is_empty() && e.message.contains(part), "{text:?}: {e:?}");
            assert!(e.at.line >= line, "{text:?}: {e:?}");
        }
    }

    #[test]
    fn a_small_file_cannot_become_a_large_one() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for n in 1..9 {
            let below = n - 1;
            text = format!("{text}a{n}: &a{n} [{}]\n", vec![format!("*a{below}"); 10].join(","));
        }
        assert!(parse(&text).unwrap_err().message.contains("more than 20000"));
        assert!(parse(&"[".repeat(100)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn no_text_of_yaml_signs_panics(text in "[-:\\[\\]{}&*!|>'\"%@#,? \\n\\ta1~<]{0,60}") {
            let _ = parse(&text).map(|root| root.map(|node| node.to_json()));
        }
    }
}
