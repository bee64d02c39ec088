//! Pages of a list, by key: a page says where the next begins, and a page is never empty while more follows.

use serde::{Deserialize, Serialize};

/// How many items a page has when nothing is said.
pub const DEFAULT_LIMIT: u32 = 100;
/// The most items that one page may have.
pub const MAX_LIMIT: u32 = 1_000;

/// What a caller asks of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// At most so many items; 1 to [`MAX_LIMIT`].
    pub limit: u32,
    /// The key after which the page begins: the `continue` of the page before.
    pub after: Option<String>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { limit: DEFAULT_LIMIT, after: None }
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// Give this as `continue` to get the next page; absent on the last.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A page out of at most `limit + 1` items that were read; the surplus one tells that more follow.
    pub fn from_surplus(mut items: Vec<T>, limit: u32, key: impl Fn(&T) -> String) -> Self {
        let next = if items.len() > limit as usize {
            items.truncate(limit as usize);
            items.last().map(key)
        } else {
            None
        };
        Self { items, next }
    }

    /// The same page of other items.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next }
    }
}
