//! The contract of the receiver: the right status for every request, and nothing stored that was
//! not verified.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use restive_kit::event::{EventFault, Received};
use restive_kit::inbox::Inbox;
use restive_kit::receiver::{
    Answer, Delivery, MAX_BODY_BYTES, Receiver, ReceiverLayer, ReceiverService,
};
use restive_kit::signature::{Diagnosis, Scheme, Secret, Signer, Verifier};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::{Place, block_on};

const BODY: &str = r#"{"id":"evt_1","type":"order.created"}"#;

fn secret() -> Secret {
    Secret::from_bytes([7; 24])
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

struct Subject {
    inbox: Inbox,
    receiver: Receiver,
    seen: Arc<Mutex<Vec<Answer>>>,
    _place: Place,
}

impl Subject {
    fn new() -> Subject {
        Subject::with(|receiver| receiver)
    }

    fn with(set: impl FnOnce(Receiver) -> Receiver) -> Subject {
        let place = Place::default();
        let inbox = place.open();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observed = seen.clone();
        let verifier = Verifier::new(Scheme::Detect, [secret()]);
        let receiver = Receiver::new(verifier, inbox.clone())
            .observe(move |answer| observed.lock().unwrap().push(answer.clone()));
        Subject { inbox, receiver: set(receiver), seen, _place: place }
    }

    fn pending(&self) -> i64 {
        block_on(self.inbox.stats()).unwrap().pending
    }

    fn send(&self, request: &Request<Bytes>, is_secure: bool, peer: Option<&str>) -> Answer {
        let peer: Option<IpAddr> = peer.map(|peer| peer.parse().unwrap());
        let (method, headers) = (request.method(), request.headers());
        let delivery = Delivery { method, headers, is_secure, peer };
        let answer = block_on(self.receiver.receive(delivery, request.body().clone()));
        assert_eq!(self.seen.lock().unwrap().last(), Some(&answer), "the observer sees it");
        serde_json::from_slice::<serde_json::Value>(&answer.body()).expect("the body is JSON");
        answer
    }

    #[track_caller]
    fn check(&self, request: &Request<Bytes>, status: u16, code: &str) {
        let answer = self.send(request, false, None);
        assert_eq!((answer.status.as_u16(), answer.code), (status, code), "{}", answer.message);
    }
}

/// A request with a valid signature.
fn signed(body: impl Into<Bytes>) -> Request<Bytes> {
    signed_at(body, now())
}

fn signed_at(body: impl Into<Bytes>, seconds: i64) -> Request<Bytes> {
    let body = body.into();
    let signature = Signer::new(&secret(), None).timestamped(seconds, &body);
    Request::post("/hook").header("restive-signature", signature).body(body).unwrap()
}

#[test]
fn a_valid_event_is_stored_and_a_repeated_one_is_acknowledged_only() {
    let subject = Subject::new();
    subject.check(&signed(BODY), 200, "received");
    subject.check(&signed_at(BODY, now() - 10), 200, "known");
    subject.check(&signed(r#"{"id":"evt_1","type":"order.deleted"}"#), 200, "event_conflict");
    assert_eq!(subject.pending(), 1);
    let varying = |count| format!(r#"{{"id":"evt_2","pending_webhooks":{count}}}"#);
    subject.check(&signed(varying(3)), 200, "received");
    subject.check(&signed(varying(2)), 200, "known");
    assert_eq!(subject.pending(), 2);
}

#[test]
fn nothing_is_stored_without_a_valid_signature() {
    let subject = Subject::new();
    let unsigned = Request::post("/").body(Bytes::from_static(BODY.as_bytes())).unwrap();
    subject.check(&unsigned, 401, "signature_invalid");
    for (request, changed) in [
        (signed(BODY), BODY.replace("created", "creates")),
        (signed(BODY), BODY[..20].to_owned()),
        (signed(BODY), String::new()),
        (signed_at(BODY, now() - 400), BODY.to_owned()),
        (signed_at(BODY, now() + 400), BODY.to_owned()),
    ] {
        let request = request.map(|_| Bytes::from(changed));
        subject.check(&request, 401, "signature_invalid");
    }
    let mut twice = signed(BODY);
    let value = twice.headers()["restive-signature"].clone();
    twice.headers_mut().append("restive-signature", value);
    subject.check(&twice, 401, "signature_invalid");
    assert_eq!(subject.pending(), 0);
}

#[test]
fn the_operator_learns_why_a_signature_does_not_verify_and_the_sender_does_not() {
    let subject = Subject::new();
    let request = signed(BODY).map(|_| Bytes::from(BODY.replace(":", ": ")));
    let answer = subject.send(&request, false, None);
    assert!(matches!(answer.diagnosis, Some(Diagnosis::Reserialised { .. })), "{answer:?}");
    let body = String::from_utf8(answer.body().to_vec()).unwrap();
    assert!(!body.contains("JSON without spaces"), "{body}");
}

#[test]
fn verified_bodies_that_are_no_events_are_refused_with_a_reason() {
    let subject = Subject::new();
    for body in [
        &b"not json"[..],
        b"",
        b"[]",
        b"[{\"id\":\"evt_1\"}]",
        b"\"evt_1\"",
        b"{\"id\":\"\xFF\"}",
        b"{}",
        b"{\"id\":5}",
        b"{\"id\":\"a\",\"id\":\"b\"}",
        b"{\"id\":\"evt_1\"",
    ] {
        subject.check(&signed(body.to_vec()), 400, "event_invalid");
    }
    let deep = format!(r#"{{"id":"evt_1","a":{}}}"#, "[".repeat(100_000));
    subject.check(&signed(deep), 400, "event_invalid");
    assert_eq!(subject.pending(), 0);
}

#[test]
fn bodies_over_the_limit_and_other_methods_are_refused_before_anything_is_read() {
    let subject = Subject::new();
    let large = vec![b' '; MAX_BODY_BYTES + 1];
    subject.check(&signed(large), 413, "body_too_large");
    let mut declared = signed(BODY);
    declared.headers_mut().insert("content-length", "10485760".parse().unwrap());
    subject.check(&declared, 413, "body_too_large");
    for method in [Method::GET, Method::PUT, Method::OPTIONS] {
        let mut request = signed(BODY);
        *request.method_mut() = method;
        subject.check(&request, 405, "method_not_allowed");
    }
    let fits = format!("{}{BODY}", " ".repeat(MAX_BODY_BYTES - BODY.len()));
    subject.check(&signed(fits), 200, "received");
}

#[test]
fn https_and_addresses_are_required_if_set_and_unknown_ones_are_refused() {
    let subject = Subject::with(|receiver| {
        let network = |peer: IpAddr| peer.is_loopback();
        receiver.https_only().allow(network)
    });
    for (is_secure, peer, status, code) in [
        (false, Some("127.0.0.1"), 403, "https_required"),
        (true, Some("192.0.2.1"), 403, "address_not_allowed"),
        (true, None, 403, "address_not_allowed"),
        (true, Some("::ffff:127.0.0.1"), 200, "received"),
        (true, Some("127.0.0.1"), 200, "known"),
    ] {
        let answer = subject.send(&signed(BODY), is_secure, peer);
        assert_eq!((answer.status.as_u16(), answer.code), (status, code), "{peer:?}");
    }
}

#[test]
fn an_event_that_cannot_be_stored_is_answered_503_with_a_time_to_retry() {
    let subject = Subject::new();
    subject.inbox.close();
    let answer = subject.send(&signed(BODY), false, None);
    assert_eq!((answer.status.as_u16(), answer.code), (503, "not_stored"));
    assert!(answer.headers().contains_key("retry-after"));
    // The reason may name files and hosts: it is for the operator only.
    assert_eq!(answer.not_stored.as_deref(), Some("the inbox is closed"));
    let body = String::from_utf8(answer.body().to_vec()).unwrap();
    assert!(!body.contains("the inbox is closed"), "{body}");
}

#[test]
fn standard_webhooks_are_known_by_their_signed_id() {
    let subject = Subject::new();
    let request = |id: &str| {
        let signature = Signer::new(&secret(), None).standard(id, now(), BODY.as_bytes());
        Request::post("/")
            .header("webhook-id", id)
            .header("webhook-timestamp", now())
            .header("webhook-signature", signature)
            .body(Bytes::from_static(BODY.as_bytes()))
            .unwrap()
    };
    subject.check(&request("msg_1"), 200, "received");
    subject.check(&request("msg_1"), 200, "known");
    subject.check(&request("msg_2"), 200, "received");
}

/// clients/vectors.json, which the clients in TypeScript and Python are tested with, too.
#[test]
fn an_event_has_the_same_id_in_all_languages() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/vectors.json");
    let vectors = std::fs::read_to_string(path).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&vectors).unwrap();
    for vector in vectors["event_ids"].as_array().unwrap() {
        let scheme = match vector["family"].as_str().unwrap() {
            "plain" => Scheme::github(),
            "hex" => Scheme::hex("X-Signature"),
            _ => Scheme::Detect,
        };
        let secrets = vector["secrets"].as_array().unwrap().iter();
        let secrets = secrets.map(|secret| Secret::parse(secret.as_str().unwrap()).unwrap());
        let headers = vector["headers"].as_object().unwrap();
        let header = |name: &str| {
            let found = headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str().unwrap().as_bytes())
        };
        let body = vector["body"].as_str().unwrap();
        let verifier = Verifier::new(scheme, secrets);
        let verified = verifier.verify(header, body.as_bytes(), 1_760_000_000).unwrap();
        let event = Received::verified(body.as_bytes().to_vec(), &verified);
        match vector["id"].as_str() {
            Some(id) => assert_eq!(event.unwrap().id, id, "{vector}"),
            None => {
                assert!(matches!(event, Err(EventFault::NoId | EventFault::IdTooLong)), "{vector}")
            }
        }
    }
}

#[test]
fn the_tower_layer_takes_its_path_and_leaves_the_rest() {
    #[derive(Clone)]
    struct Inner;
    impl Service<Request<Full<Bytes>>> for Inner {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
            std::future::ready(Ok(Response::new(Full::from("inner"))))
        }
    }
    let subject = Subject::with(|receiver| receiver.https_only().max_body_bytes(1_000));
    let service = ReceiverService::new(subject.receiver.clone())
        .is_secure(|parts| parts.headers.contains_key("x-secure"));
    let mut layered = ReceiverLayer::new("/hook", service).layer(Inner);
    let mut call = |mut request: Request<Bytes>, path: &str, is_secure: bool| {
        *request.uri_mut() = path.parse().unwrap();
        if is_secure {
            request.headers_mut().insert("x-secure", "1".parse().unwrap());
        }
        block_on(async {
            let response = layered.call(request.map(Full::new)).await.unwrap();
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    };
    assert_eq!(call(signed(BODY), "/other", false), (200, "inner".to_owned()));
    assert_eq!(call(signed(BODY), "/hook", false).0, 403);
    assert_eq!(call(signed(BODY), "/hook", true), (200, r#"{"received":true}"#.to_owned()));
    assert_eq!(call(signed(vec![b'x'; 1_001]), "/hook", true).0, 413);
    assert_eq!(subject.pending(), 1);
}
