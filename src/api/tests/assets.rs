//! Files for nodes: whole, in parts, and only those that there are.

use axum::http::{Method, StatusCode};

use super::harness::Api;

const PATH: &str = "/assets/runc/1/amd64/runc";

async fn api() -> Api {
    let api = Api::new().await;
    api.parts.files.lock().unwrap().insert("runc/1/amd64/runc".into(), b"0123456789".to_vec());
    api
}

#[tokio::test]
async fn a_download_goes_on_where_it_was_cut() {
    let api = api().await;
    let whole = api.get(PATH).send().await.expect(StatusCode::OK);
    assert_eq!(
        (whole.text.as_str(), &whole.headers["content-length"], &whole.headers["accept-ranges"]),
        ("0123456789", &"10".parse().unwrap(), &"bytes".parse().unwrap())
    );
    assert_eq!(whole.headers["content-type"], "application/octet-stream");
    let etag = whole.headers["etag"].to_str().unwrap().to_owned();
    let part = api.get(PATH).header("range", "bytes=4-").header("if-range", &etag).send().await.expect(StatusCode::PARTIAL_CONTENT);
    assert_eq!(
        (part.text.as_str(), &part.headers["content-range"], &part.headers["content-length"]),
        ("456789", &"bytes 4-9/10".parse().unwrap(), &"6".parse().unwrap())
    );
    let other = api.get(PATH).header("range", "bytes=4-").header("if-range", "\"another\"").send().await.expect(StatusCode::OK);
    assert_eq!(other.text, "0123456789");
    let nowhere = api.get(PATH).header("range", "bytes=10-").send().await.expect(StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(nowhere.headers["content-range"], "bytes */10");
    nowhere.problem("no-such-range");
    let known = api.get(PATH).header("if-none-match", &etag).send().await.expect(StatusCode::NOT_MODIFIED);
    assert!(known.text.is_empty());
}

#[tokio::test]
async fn its_head_tells_as_much_and_sends_nothing() {
    let api = api().await;
    let head = api.call(Method::HEAD, PATH).header("range", "bytes=4-").send().await.expect(StatusCode::OK);
    assert_eq!((head.text.as_str(), &head.headers["content-length"]), ("", &"10".parse().unwrap()));
    api.call(Method::POST, PATH).send().await.problem("method-not-allowed");
}

#[tokio::test]
async fn programs_are_sent_as_they_are_whatever_is_accepted() {
    let api = api().await;
    api.parts.files.lock().unwrap().insert("runc/1/amd64/large".into(), vec![b'a'; 100_000]);
    let reply = api.get("/assets/runc/1/amd64/large").header("accept-encoding", "gzip, br").send().await.expect(StatusCode::OK);
    assert!(!reply.headers.contains_key("content-encoding"));
    assert_eq!(reply.headers["content-length"], "100000");
}

#[tokio::test]
async fn what_is_not_there_is_a_problem() {
    let api = api().await;
    for path in
        ["/assets/runc/1/amd64/other", "/assets/", "/assets", "/assets/..%2f..%2fetc%2fpasswd", &format!("/assets/{}", "a".repeat(600))]
    {
        api.get(path).send().await.expect(StatusCode::NOT_FOUND).problem("not-found");
    }
}

#[tokio::test]
async fn so_many_downloads_go_on_to_one_source_at_once() {
    let api = api().await;
    let mut open = Vec::new();
    let refused = loop {
        let response = api.get(PATH).from("192.0.2.1").open().await;
        if response.status() != StatusCode::OK {
            break response;
        }
        open.push(response);
        assert!(open.len() < 1000);
    };
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    api.get(PATH).from("192.0.2.2").send().await.expect(StatusCode::OK);
    drop(open);
    api.get(PATH).from("192.0.2.1").send().await.expect(StatusCode::OK);
}
