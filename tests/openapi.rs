//! The committed OpenAPI document is the one that the routes declare.

#[test]
fn the_committed_document_is_what_the_routes_declare() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    let committed = std::fs::read_to_string(path).expect("docs/openapi.json is committed");
    let declared = kubebyon::api::openapi::document();
    if committed != declared {
        let line = committed.lines().zip(declared.lines()).position(|(a, b)| a != b).map_or(0, |at| at + 1);
        panic!("docs/openapi.json differs from the routes from line {line} on; run: kubebyon openapi > docs/openapi.json");
    }
}
