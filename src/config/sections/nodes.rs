//! `nodes.*`: what clusters' nodes run of the platform's. Imports nothing of ours beside the section.

use crate::config::section::section;
use crate::domain::Invalid;

section! {
    /// What clusters' nodes run of the platform's.
    pub struct Nodes {
        /// The image that holds a pod's namespaces.
        pause_image: String = "registry.k8s.io/pause:3.10.1".into(),
        /// The image of CoreDNS.
        coredns_image: String = "registry.k8s.io/coredns/coredns:v1.13.1".into(),
    }
}

impl Nodes {
    /// Images are named by a reference: `[host[:port]/]path[:tag][@digest]`.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        for (field, image) in [("nodes.pause_image", &self.pause_image), ("nodes.coredns_image", &self.coredns_image)] {
            if !is_reference(image) {
                let message = format!("{image:?} is no image; it looks like registry.example.com/path/name:v1.2.3");
                problems.push(Invalid::new(field, message));
            }
        }
    }
}

/// Whether a text can be an image's reference. What registries make of it is not judged here.
fn is_reference(text: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b);
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    // Behind the last slash: before it, a colon is a port's.
    let name = text.rsplit('/').next().unwrap_or(text);
    text.len() <= 512
        && bytes.iter().all(|b| inside(*b))
        && ends(bytes.first())
        && ends(bytes.last())
        && !text.contains("//")
        && name.contains([':', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_references_with_a_tag_or_a_digest() {
        for good in ["pause:3.10.1", "registry.k8s.io/pause:3.10.1", "10.0.0.1:5000/a/b:v1", "a/b@sha256:0123abcd", "a/b:v1@sha256:01ab"] {
            assert!(is_reference(good), "{good}");
        }
        for bad in ["", "pause", "registry:5000/pause", "https://a/b:1", "a b:1", "a/b:", "/a:1", "a//b:1", "a\n:1"] {
            assert!(!is_reference(bad), "{bad:?}");
        }
        let mut problems = Vec::new();
        Nodes { pause_image: "x y".into(), ..Nodes::default() }.validate(&mut problems);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "nodes.pause_image");
    }
}
