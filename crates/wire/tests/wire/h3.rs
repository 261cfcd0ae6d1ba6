//! HTTP/3 with a client that behaves: the same exchanges as on HTTP/1.1 and HTTP/2.

use http::{Method, StatusCode};
use wire::Limits;

use crate::h2_client::run;
use crate::h3_client::{echo, request};

const LARGE_BYTES: usize = 8 << 20;

#[test]
fn requests_are_answered_as_on_http_1() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let mut client = trust.client(&server).await;
        let echoed = client.post("/echo?q=1", "hello").await;
        assert_eq!(echoed.status, StatusCode::OK);
        assert_eq!(echoed.body, "{\"saw\":\"POST /echo?q=1\",\"body\":\"hello\"}");
        assert_eq!(echoed.headers["content-type"], "application/json");
        assert_eq!(echoed.headers["content-length"], echoed.body.len().to_string());
        assert!(echoed.headers.contains_key("date"));
        assert!(!echoed.headers.contains_key("alt-svc"), "it is here already");
        let empty = client.get("/empty").await;
        assert_eq!(empty.status, StatusCode::NO_CONTENT);
        assert!(!empty.headers.contains_key("content-length"));
        let head = client.ask(request(Method::HEAD, "/one")).await.unwrap();
        assert_eq!(
            (head.body.as_str(), &head.headers["content-length"]),
            ("", &"29".parse().unwrap())
        );
        let large = client.get("/large").await;
        assert_eq!(large.body.len(), LARGE_BYTES);
    });
}
