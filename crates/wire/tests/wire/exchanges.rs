//! Requests that are served: order, versions, bodies, methods.

use crate::server::Server;

const GET: &str = "GET /one HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start();
    let mut wire = server.connect();
    let post = "POST /two HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    for _ in 0..20 {
        wire.send(format!("{GET}{post}{GET}").repeat(20));
        for _ in 0..20 {
            assert!(wire.response().contains("\"saw\":\"GET /one\",\"body\":\"\""));
            assert!(wire.response().contains("\"saw\":\"POST /two\",\"body\":\"hi\""));
            assert!(wire.response().contains("\"saw\":\"GET /one\""));
        }
    }
}

#[test]
fn a_request_that_arrives_byte_by_byte_is_served() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.stream.set_nodelay(true).unwrap();
    for byte in b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" {
        wire.send([*byte]);
    }
    assert!(wire.response().contains("\"saw\":\"POST /x\",\"body\":\"hi\""));
}

#[test]
fn http_1_0_is_answered_and_closed_unless_kept_alive() {
    let server = Server::start();
    let answer = server.exchange("GET /old HTTP/1.0\r\n\r\n");
    assert!(answer.contains("200 OK") && answer.contains("GET /old"), "{answer}");
    let mut wire = server.connect();
    for _ in 0..2 {
        wire.send("GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert!(wire.response().contains("GET /old"));
    }
}

#[test]
fn connection_close_is_honoured() {
    let server = Server::start();
    let answer = server.exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
}

#[test]
fn a_client_that_closed_its_sending_side_still_gets_its_answer() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.finish_sending();
    server.saw("GET /wait");
    server.gate.add_permits(1);
    assert!(wire.rest().contains("GET /wait"));
}

#[test]
fn a_response_to_head_has_the_length_and_no_body() {
    let server = Server::start();
    let get = "GET /one HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let length = server.exchange(get).split_once("\r\n\r\n").unwrap().1.len() + 1;
    let answer = server.exchange(get.replace("GET", "HEAD"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {length}")), "{head}");
    assert_eq!(body, "");
}

#[test]
fn no_content_has_neither_body_nor_length() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.send(GET.replace("/one", "/empty"));
    let answer = wire.response();
    assert!(answer.starts_with("HTTP/1.1 204 ") && !answer.contains("content-length"), "{answer}");
    wire.send(GET);
    assert!(wire.response().contains("GET /one"), "the connection goes on");
}

#[test]
fn absolute_form_and_options_star_reach_the_service() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.send("GET http://a:80/x?y=z HTTP/1.1\r\nHost: A:80\r\n\r\n");
    assert!(wire.response().contains("\"saw\":\"GET /x?y=z\""));
    wire.send("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wire.response().contains("\"saw\":\"GET /\""));
    wire.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wire.response().contains("\"saw\":\"OPTIONS *\""));
    wire.send("BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wire.response().contains("\"saw\":\"BREW /pot\""));
}

#[test]
fn a_chunked_body_is_read_whole() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    wire.send("2\r\nhi\r\n");
    wire.send("3\r\n he\r\n0\r\n\r\n");
    assert!(wire.response().contains("\"body\":\"hi he\""));
    wire.send(GET);
    assert!(wire.response().contains("GET /one"), "the connection goes on");
}

#[test]
fn broken_chunks_are_the_clients_fault() {
    let server = Server::start();
    for chunks in
        ["xyz\r\n", "2\r\nhi?\r\n0\r\n\r\n", "2\nhi\r\n0\r\n\r\n", "fffffffffffffffff\r\n"]
    {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = server.exchange(format!("{head}{chunks}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert!(answer.contains("Malformed"), "{chunks:?}: {answer}");
    }
}

#[test]
fn a_body_is_incomplete_if_the_client_disconnects() {
    let server = Server::start();
    for body in ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n5\r\nha"] {
        let mut wire = server.connect();
        wire.send(format!("POST /x HTTP/1.1\r\nHost: a\r\n{body}"));
        server.saw("POST /x");
        drop(wire);
        server.saw("Incomplete");
    }
}

#[test]
fn a_declared_length_over_the_limit_is_refused_before_it_is_sent() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n");
    wire.send("Expect: 100-continue\r\n\r\n");
    let answer = wire.rest();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("TooLarge"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[test]
fn a_client_whose_body_is_over_the_limit_can_read_the_response() {
    let server = Server::start();
    let body = "b".repeat(3 << 20);
    let answer = server.exchange(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert!(answer.contains("TooLarge"), "{answer}");
    let chunks = format!("200\r\n{}\r\n", "b".repeat(512)).repeat(6 << 10);
    let answer = server.exchange(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    ));
    assert!(answer.contains("TooLarge"), "{answer}");
}

#[test]
fn expect_continue_is_answered_when_the_service_reads_the_body() {
    let server = Server::start();
    let mut wire = server.connect();
    for _ in 0..2 {
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n");
        wire.send("Expect: 100-continue\r\n\r\n");
        assert_eq!(wire.response(), "HTTP/1.1 100 Continue\r\n\r\n");
        wire.send("hi");
        assert!(wire.response().contains("\"body\":\"hi\""));
    }
}

#[test]
fn a_service_that_ignores_the_body_does_not_confuse_the_next_request() {
    let server = Server::start();
    let mut wire = server.connect();
    let post = "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    wire.send(format!("{post}{GET}"));
    assert!(wire.response().ends_with("unread"));
    assert!(wire.response().contains("GET /one"));
}

#[test]
fn a_panic_of_the_service_is_answered_500_and_the_connection_continues() {
    let server = Server::start();
    let mut wire = server.connect();
    for path in ["/panic", "/interim"] {
        wire.send(GET.replace("/one", path));
        let answer = wire.response();
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("refused"), "{answer}");
    }
    wire.send(GET);
    assert!(wire.response().contains("GET /one"));
}

#[test]
fn a_second_server_on_the_same_address_fails_to_bind() {
    let server = Server::start();
    let error = wire::Listener::bind(server.address).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}
