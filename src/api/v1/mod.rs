//! The resources below `/api/v1`, one folder each: its request and response types, which the command line uses too, and its
//! handlers. Reads answer with the types of `domain`.

pub mod api_tokens;
pub mod clusters;
pub mod events;
pub mod jobs;
pub mod join_tokens;
pub mod kubeconfigs;
pub mod logs;
pub mod nodes;
pub mod projects;
pub mod sessions;
pub mod settings;
pub mod users;
pub mod versions;

use crate::api::problem::Problem;
use crate::domain::page::{Page, PageRequest};

/// A page of a list that the store gives whole: such lists are short, or bounded by what one owner may have.
fn slice<T>(items: Vec<T>, page: &PageRequest, key: impl Fn(&T) -> String) -> Result<Page<T>, Problem> {
    let skip = match &page.after {
        None => 0,
        Some(after) => 1 + items.iter().position(|item| key(item) == *after).ok_or_else(bad_continue)?,
    };
    let surplus: Vec<T> = items.into_iter().skip(skip).take(page.limit as usize + 1).collect();
    Ok(Page::from_surplus(surplus, page.limit, key))
}

fn bad_continue() -> Problem {
    Problem::bad_parameter(
        "continue",
        "this is not the `continue` of a page of this list, or what it stands for is gone; begin anew without it",
    )
}
