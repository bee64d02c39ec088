//! What is wrong with a configuration, and where each value came from. May import: nothing of ours.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::yaml::Place;

/// The exit code of a process whose configuration is wrong (`EX_USAGE` of sysexits.h, as the command line's contract has it).
pub const EXIT_CODE: u8 = 64;

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the file.
    File {
        /// Its path.
        path: PathBuf,
        /// The line, counted from 1; 0 for the file as a whole.
        line: usize,
        /// The column, counted from 1.
        column: usize,
    },
    /// By a variable of the environment.
    Environment(String),
    /// By a flag, named as it is typed.
    Flag(String),
}

impl Origin {
    pub(super) fn place(path: &std::path::Path, at: Place) -> Self {
        Self::File { path: path.to_owned(), line: at.line, column: at.column }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, line: 0, .. } => write!(f, "{}", path.display()),
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Where keys were given, by dotted path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(pub(super) BTreeMap<String, Origin>);

impl Origins {
    /// Where a key was given; `None` when its default stands. A part of a value (`passthrough[1].host`) has the place of the
    /// smallest part around it that is known.
    pub fn of(&self, key: &str) -> Option<&Origin> {
        let mut path = key;
        loop {
            if let Some(origin) = self.0.get(path) {
                return Some(origin);
            }
            path = &path[..path.rfind(['.', '[']).filter(|end| path[*end..].starts_with('[') || path[..*end].ends_with(']'))?];
        }
    }

    /// Every key that was given, and where.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.0.iter().map(|(key, origin)| (key.as_str(), origin))
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where; `None` when it follows from defaults.
    pub origin: Option<Origin>,
    /// The key's dotted path; empty when it is no key's.
    pub key: String,
    /// What is wrong, and what is right.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        // One problem a line, whatever a value holds.
        f.write_str(&self.message.replace(['\n', '\r'], " "))
    }
}

/// Everything that is wrong with a configuration; one problem a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<Problem>);

impl ConfigErrors {
    /// Orders by layer and place: the file from its top, the environment, flags, then what follows from defaults.
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        let rank = |problem: &Problem| match &problem.origin {
            Some(Origin::File { line, column, .. }) => (0, *line, *column),
            Some(Origin::Environment(_)) => (1, 0, 0),
            Some(Origin::Flag(_)) => (2, 0, 0),
            None => (3, 0, 0),
        };
        problems.sort_by_key(rank);
        problems.dedup();
        Self(problems)
    }

    /// The problems, in order.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}
