//! `section!`: a part of the configuration with its keys, their defaults and what is said of them, each written once.
//!
//! From one block come the struct, its `Default` and the list of keys, so that the known keys, the reference page and
//! the types cannot drift apart. May import: nothing of ours.

/// A key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its dotted path, such as `log.level`.
    pub path: String,
    /// What it is for.
    pub doc: String,
    /// Whether it is a section, which holds keys, rather than a value.
    pub is_section: bool,
}

/// What can list its keys; `section!` implements it.
pub trait Section {
    /// Adds the keys, in the order in which they are declared, below `prefix` (empty, or ending in a dot).
    fn keys(prefix: &str, into: &mut Vec<Key>);
}

/// The lines of a doc comment as one paragraph.
pub(super) fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a section. Values stand in the braces as `key: Type = default`; sections below it follow in `sections { }`.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $Name:ident {
            $( $(#[doc = $doc:literal])+ $key:ident: $Type:ty = $default:expr, )*
            $( sections { $( $(#[doc = $inner_doc:literal])+ $inner:ident: $Inner:ty, )* } )?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $Name {
            $( $(#[doc = $doc])+ pub $key: $Type, )*
            $( $( $(#[doc = $inner_doc])+ pub $inner: $Inner, )* )?
        }

        impl Default for $Name {
            fn default() -> Self {
                Self {
                    $( $key: $default, )*
                    $( $( $inner: <$Inner>::default(), )* )?
                }
            }
        }

        impl $crate::config::section::Section for $Name {
            fn keys(prefix: &str, into: &mut Vec<$crate::config::section::Key>) {
                use $crate::config::section::{Key, paragraph};
                $( into.push(Key { path: format!("{prefix}{}", stringify!($key)), doc: paragraph(&[$($doc),+]), is_section: false }); )*
                $( $(
                    let path = format!("{prefix}{}", stringify!($inner));
                    into.push(Key { path: path.clone(), doc: paragraph(&[$($inner_doc),+]), is_section: true });
                    <$Inner as $crate::config::section::Section>::keys(&format!("{path}."), into);
                )* )?
            }
        }
    };
}
pub(super) use section;
