//! Which requests are let in, as raw bytes: every form that two servers in a chain may read
//! differently, and the odd ones that must pass. A refused one never reaches the service, has a
//! body that says why, and ends the connection.

use crate::h2_client;
use crate::server::Server;

/// What must become of a request.
#[derive(Clone, Copy)]
enum Want {
    /// The service sees this method and target, and this body.
    Served(&'static str, &'static str),
    /// Refused with this status and a reason that contains this.
    Refused(u16, &'static str),
    /// The service is told that the body's framing is broken.
    BadBody,
    /// Or that a field may not stand behind it.
    BadTrailer,
}

use Want::{BadBody, BadTrailer, Refused, Served};

fn check(server: &Server, case: &str, bytes: &[u8], want: Want) {
    // The next request on the same connection must not be reached through a refused one.
    let mut sent = bytes.to_vec();
    sent.extend_from_slice(b"GET /after HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = server.exchange(&sent);
    let said = format!("{case}: {}\n→ {answer}", bytes.escape_ascii());
    let (head, body) = answer.split_once("\r\n\r\n").expect(&said);
    match want {
        Served(line, content) => {
            assert!(head.starts_with("HTTP/1.1 200 "), "{said}");
            assert!(body.contains(&format!("\"saw\":\"{line}\"")), "{said}");
            assert!(body.contains(&format!("\"body\":\"{content}\"")), "{said}");
            server.saw(line);
            if !head.contains("connection: close") {
                assert!(answer.contains("\"saw\":\"GET /after\""), "{said}");
                server.saw("GET /after");
            }
        }
        Refused(status, says) => {
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
            assert!(body.starts_with("{\"refused\":\"") && body.contains(says), "{said}");
            assert!(head.contains("connection: close"), "{said}");
        }
        BadBody | BadTrailer => {
            let fault = if matches!(want, BadBody) { "Malformed" } else { "ForbiddenTrailer" };
            assert!(head.starts_with("HTTP/1.1 400 ") && body.contains(fault), "{said}");
            assert!(head.contains("connection: close"), "{said}");
            server.saw("POST /");
            server.saw(fault);
        }
    }
    server.saw_nothing();
    let answers = answer.matches("\r\ndate: ").count();
    assert_eq!(answers, 1 + answer.matches("GET /after").count(), "{said}");
}

/// Checks heads that differ in their header lines only.
fn headers(cases: &[(&str, &str, Want)]) {
    let server = Server::start();
    for (case, lines, want) in cases {
        let bytes = format!("POST / HTTP/1.1\r\n{lines}");
        check(&server, case, bytes.as_bytes(), *want);
    }
}

/// The table of measured cases (nginx, HAProxy, Caddy, hyper, Pingora differ on each of them).
#[test]
fn forms_that_servers_read_differently_are_refused() {
    let server = Server::start();
    let host = "POST / HTTP/1.1\r\nHost: a\r\n";
    for (case, bytes, want) in [
        (
            "length and encoding",
            format!("{host}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Refused(400, "exclude"),
        ),
        (
            "encoding and length",
            format!("{host}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
            Refused(400, "exclude"),
        ),
        (
            "encoding list",
            format!("{host}Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n"),
            Refused(501, "chunked"),
        ),
        (
            "encoding twice",
            format!("{host}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Refused(400, "Transfer-Encoding"),
        ),
        (
            "chunked twice in one line",
            format!("{host}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
            Refused(400, "chunked"),
        ),
        (
            "encoding on HTTP/1.0",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            Refused(400, "Transfer-Encoding"),
        ),
        (
            "two equal lengths",
            format!("{host}Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"),
            Refused(400, "Content-Length"),
        ),
        (
            "a list of equal lengths",
            format!("{host}Content-Length: 4, 4\r\n\r\nabcd"),
            Refused(400, "Content-Length"),
        ),
        ("obs-fold", format!("{host}x: a\r\n b\r\n\r\n"), Refused(400, "further line")),
        ("obs-fold with a tab", format!("{host}x: a\r\n\tb\r\n\r\n"), Refused(400, "further")),
        ("bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n".into(), Refused(400, "bare LF")),
        ("bare LF after a header", format!("{host}x: a\n\r\n"), Refused(400, "bare LF")),
        ("bare LF as the last line", format!("{host}\n"), Refused(400, "bare LF")),
        ("no host", "GET / HTTP/1.1\r\n\r\n".into(), Refused(400, "Host")),
        ("two hosts", format!("{host}Host: b\r\n\r\n"), Refused(400, "Host")),
        ("the same host twice", format!("{host}host: a\r\n\r\n"), Refused(400, "Host")),
        ("length with a sign", format!("{host}Content-Length: +4\r\n\r\nabcd"), Refused(400, "")),
        ("hexadecimal length", format!("{host}Content-Length: 0x4\r\n\r\nabcd"), Refused(400, "")),
        ("space before the colon", format!("{host}x : a\r\n\r\n"), Refused(400, "name")),
        ("bare CR in a value", format!("{host}x: a\rb\r\n\r\n"), Refused(400, "")),
        ("bare CR as a line end", "GET / HTTP/1.1\rHost: a\r\r".into(), Refused(400, "")),
    ] {
        check(&server, case, bytes.as_bytes(), want);
    }
}

#[test]
fn lengths_and_encodings_have_one_spelling() {
    headers(&[
        ("usual", "Host: a\r\nContent-Length: 2\r\n\r\nhi", Served("POST /", "hi")),
        ("shouted", "HOST: a\r\nCONTENT-LENGTH: 2\r\n\r\nhi", Served("POST /", "hi")),
        ("whispered", "host: a\r\ncontent-length:2\r\n\r\nhi", Served("POST /", "hi")),
        ("spaces", "Host: \ta \t\r\nContent-Length:  2 \t\r\n\r\nhi", Served("POST /", "hi")),
        ("zeros", "Host: a\r\nContent-Length: 002\r\n\r\nhi", Served("POST /", "hi")),
        ("zero", "Host: a\r\nContent-Length: 0\r\n\r\n", Served("POST /", "")),
        ("no length", "Host: a\r\n\r\n", Served("POST /", "")),
        ("empty", "Host: a\r\nContent-Length:\r\n\r\n", Refused(400, "not a number")),
        ("negative", "Host: a\r\nContent-Length: -1\r\n\r\n", Refused(400, "not a number")),
        ("inner space", "Host: a\r\nContent-Length: 1 2\r\n\r\n", Refused(400, "not a number")),
        ("point", "Host: a\r\nContent-Length: 2.0\r\n\r\nhi", Refused(400, "not a number")),
        (
            "overflow",
            "Host: a\r\nContent-Length: 18446744073709551616\r\n\r\n",
            Refused(400, "not a number"),
        ),
        (
            "two that differ",
            "Host: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
            Refused(400, "at most one"),
        ),
        (
            "Chunked",
            "Host: a\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Served("POST /", "hi"),
        ),
        (
            "CHUNKED",
            "Host: a\r\nTRANSFER-ENCODING:\tCHUNKED \r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Served("POST /", "hi"),
        ),
        ("gzip", "Host: a\r\nTransfer-Encoding: gzip\r\n\r\n", Refused(501, "chunked")),
        ("xchunked", "Host: a\r\nTransfer-Encoding: xchunked\r\n\r\n", Refused(501, "chunked")),
        ("parameter", "Host: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n", Refused(400, "chunked")),
        ("quoted", "Host: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", Refused(400, "chunked")),
        ("none", "Host: a\r\nTransfer-Encoding:\r\n\r\n", Refused(400, "chunked")),
        ("comma", "Host: a\r\nTransfer-Encoding: ,chunked\r\n\r\n", Refused(400, "chunked")),
        (
            "vertical tab",
            "Host: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
            Refused(400, "value"),
        ),
        ("broken name", "Host: a\r\nTransfer Encoding: chunked\r\n\r\n", Refused(400, "name")),
    ]);
}

#[test]
fn chunks_have_one_spelling() {
    let server = Server::start();
    for (case, chunks, want) in [
        ("usual", "2\r\nhi\r\n0\r\n\r\n", Served("POST /", "hi")),
        ("two", "1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", Served("POST /", "hi")),
        ("hexadecimal", "A\r\n0123456789\r\n0\r\n\r\n", Served("POST /", "0123456789")),
        ("small letters", "a\r\n0123456789\r\n0\r\n\r\n", Served("POST /", "0123456789")),
        ("leading zeros", "0002\r\nhi\r\n000\r\n\r\n", Served("POST /", "hi")),
        ("extension", "2;a=b;c=\"d e\"\r\nhi\r\n0;last\r\n\r\n", Served("POST /", "hi")),
        ("trailer", "2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n", Served("POST /", "hi")),
        ("none", "\r\n0\r\n\r\n", BadBody),
        ("negative", "-2\r\nhi\r\n0\r\n\r\n", BadBody),
        ("sign", "+2\r\nhi\r\n0\r\n\r\n", BadBody),
        ("prefix", "0x2\r\nhi\r\n0\r\n\r\n", BadBody),
        ("space before", " 2\r\nhi\r\n0\r\n\r\n", BadBody),
        ("space behind", "2 \r\nhi\r\n0\r\n\r\n", BadBody),
        ("space before an extension", "2 ;a\r\nhi\r\n0\r\n\r\n", BadBody),
        ("underscore", "1_0\r\n0123456789abcdef\r\n0\r\n\r\n", BadBody),
        ("not a digit", "g\r\nhi\r\n0\r\n\r\n", BadBody),
        ("overflow", "10000000000000002\r\nhi\r\n0\r\n\r\n", BadBody),
        ("bare LF behind the size", "2\nhi\r\n0\r\n\r\n", BadBody),
        ("bare LF in the extension", "2;a\nb\r\nhi\r\n0\r\n\r\n", BadBody),
        ("bare CR in the extension", "2;a\rb\r\nhi\r\n0\r\n\r\n", BadBody),
        ("NUL in the extension", "2;a\0\r\nhi\r\n0\r\n\r\n", BadBody),
        ("bare LF behind the data", "2\r\nhi\n0\r\n\r\n", BadBody),
        ("no end of line behind the data", "2\r\nhi0\r\n\r\n", BadBody),
        ("more than the size", "2\r\nhi!\r\n0\r\n\r\n", BadBody),
        ("less than the size", "3\r\nhi\r\n0\r\n\r\n", BadBody),
        ("bare LF at the end", "2\r\nhi\r\n0\r\n\n", BadBody),
        ("trailer with a bare LF", "2\r\nhi\r\n0\r\nx: y\n\r\n", BadBody),
        ("trailer without a colon", "2\r\nhi\r\n0\r\nxy\r\n\r\n", BadBody),
        ("folded trailer", "2\r\nhi\r\n0\r\nx: y\r\n z\r\n\r\n", BadBody),
        ("length as a trailer", "2\r\nhi\r\n0\r\nContent-Length: 2\r\n\r\n", BadTrailer),
        ("encoding as a trailer", "2\r\nhi\r\n0\r\nTransfer-Encoding: x\r\n\r\n", BadTrailer),
        ("host as a trailer", "2\r\nhi\r\n0\r\nHOST: b\r\n\r\n", BadTrailer),
        ("key as a trailer", "2\r\nhi\r\n0\r\nAuthorization: b\r\n\r\n", BadTrailer),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&server, case, format!("{head}{chunks}").as_bytes(), want);
    }
}

#[test]
fn chunk_extensions_and_trailers_are_bounded() {
    let server = Server::start();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let line = format!("2;{}\r\nhi\r\n0\r\n\r\n", "x".repeat(300));
    check(&server, "a long extension", format!("{head}{line}").as_bytes(), BadBody);
    let many = format!("1;{}\r\nx\r\n", "x".repeat(200)).repeat(100) + "0\r\n\r\n";
    check(&server, "many extensions", format!("{head}{many}").as_bytes(), BadBody);
    let trailers = format!("0\r\n{}\r\n", "x: y\r\n".repeat(40));
    check(&server, "many trailers", format!("{head}{trailers}").as_bytes(), BadBody);
    let trailer = format!("0\r\nx: {}\r\n\r\n", "y".repeat(9000));
    check(&server, "a long trailer", format!("{head}{trailer}").as_bytes(), BadBody);
    // A size that no body reaches: taken for what it is, refused by the reader's own limit.
    let huge = server.exchange(format!("{head}FFFFFFFFFFFFFFFF\r\n{}", "x".repeat(2000)));
    assert!(huge.starts_with("HTTP/1.1 400 ") && huge.contains("TooLarge"), "{huge}");
}

#[test]
fn request_lines_have_one_spelling() {
    let server = Server::start();
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    let long_method = format!("{} / HTTP/1.1", "A".repeat(33));
    let method = "Q".repeat(32);
    let known: &'static str = format!("{method} /").leak();
    for (case, bytes, want) in [
        ("any method", line("BREW /pot HTTP/1.1"), Served("BREW /pot", "")),
        ("small letters are another method", line("get / HTTP/1.1"), Served("get /", "")),
        (
            "signs in a method",
            line("X-!#$%&'*+.^_`|~ / HTTP/1.1"),
            Served("X-!#$%&'*+.^_`|~ /", ""),
        ),
        ("a long method", line(&format!("{method} / HTTP/1.1")), Served(known, "")),
        ("too long a method", line(&long_method), Refused(400, "method")),
        ("query", line("GET /a?b=c&d=%20 HTTP/1.1"), Served("GET /a?b=c&d=%20", "")),
        ("two slashes", line("GET //b/c HTTP/1.1"), Served("GET //b/c", "")),
        ("dots are left to the service", line("GET /../x HTTP/1.1"), Served("GET /../x", "")),
        ("absolute form", line("GET http://a/x?y HTTP/1.1"), Served("GET /x?y", "")),
        ("absolute form in capitals", line("GET HTTP://A/x HTTP/1.1"), Served("GET /x", "")),
        ("absolute form without a path", line("GET http://a HTTP/1.1"), Served("GET /", "")),
        ("absolute form, other host", line("GET http://b:81/ HTTP/1.1"), Served("GET /", "")),
        ("absolute form with a user", line("GET http://u@a/ HTTP/1.1"), Refused(400, "host")),
        ("absolute form, bad port", line("GET http://a:x/ HTTP/1.1"), Refused(400, "")),
        ("absolute form without a host", line("GET http:/// HTTP/1.1"), Refused(400, "")),
        ("absolute form of another scheme", line("GET ftp://a/ HTTP/1.1"), Refused(400, "path")),
        ("authority form", line("GET a:80 HTTP/1.1"), Refused(400, "path")),
        ("tunnel", line("CONNECT a:80 HTTP/1.1"), Refused(405, "CONNECT")),
        ("asterisk", line("OPTIONS * HTTP/1.1"), Served("OPTIONS *", "")),
        ("asterisk for others", line("GET * HTTP/1.1"), Refused(400, "path")),
        ("fragment", line("GET /a#b HTTP/1.1"), Refused(400, "fragment")),
        ("relative", line("GET a/b HTTP/1.1"), Refused(400, "path")),
        ("no target", line("GET  HTTP/1.1"), Refused(400, "request line")),
        ("space in the target", line("GET /a b HTTP/1.1"), Refused(400, "request line")),
        ("two spaces", line("GET  / HTTP/1.1"), Refused(400, "request line")),
        ("two spaces before the version", line("GET /  HTTP/1.1"), Refused(400, "")),
        ("tab", line("GET\t/\tHTTP/1.1"), Refused(400, "request line")),
        ("space at the end", line("GET / HTTP/1.1 "), Refused(400, "")),
        ("space at the beginning", line(" GET / HTTP/1.1"), Refused(400, "request line")),
        ("no version", line("GET /"), Refused(400, "request line")),
        ("small version", line("GET / http/1.1"), Refused(400, "request line")),
        ("HTTP/1.2", line("GET / HTTP/1.2"), Served("GET /", "")),
        ("HTTP/1.10", line("GET / HTTP/1.10"), Refused(400, "")),
        ("HTTP/2.0", line("GET / HTTP/2.0"), Refused(505, "HTTP/1.1 and HTTP/1.0 only")),
        ("HTTP/0.9", line("GET / HTTP/0.9"), Refused(505, "HTTP/1.1 and HTTP/1.0 only")),
        ("HTTP/1.9", line("GET / HTTP/1.9"), Served("GET /", "")),
        ("NUL in the method", line("G\0T / HTTP/1.1"), Refused(400, "request line")),
        ("NUL in the target", line("GET /\0 HTTP/1.1"), Refused(400, "request line")),
        ("one empty line before", format!("\r\n{}", line("GET / HTTP/1.1")), Served("GET /", "")),
        ("four", format!("{}{}", "\r\n".repeat(4), line("GET / HTTP/1.1")), Served("GET /", "")),
        ("five", "\r\n".repeat(5), Refused(400, "empty lines")),
        ("empty line with a bare LF", format!("\n{}", line("GET / HTTP/1.1")), Refused(400, "LF")),
    ] {
        check(&server, case, bytes.as_bytes(), want);
    }
    let server = Server::without_http_2();
    check(&server, "HTTP/2 preface", h2_client::PREFACE, Refused(505, "only"));
}

#[test]
fn header_lines_have_one_spelling() {
    headers(&[
        ("underscore in a name", "Host: a\r\nx_y: z\r\n\r\n", Served("POST /", "")),
        ("no value", "Host: a\r\nx:\r\n\r\n", Served("POST /", "")),
        ("no host at all", "x: Host: a\r\n\r\n", Refused(400, "Host")),
        ("an empty host", "Host:\r\n\r\n", Refused(400, "Host")),
        ("a port alone", "Host: :80\r\n\r\n", Refused(400, "Host")),
        ("a host with a port", "Host: a.example:80\r\n\r\n", Served("POST /", "")),
        ("an empty port", "Host: a:\r\n\r\n", Served("POST /", "")),
        ("the largest port", "Host: a:65535\r\n\r\n", Served("POST /", "")),
        ("a larger port", "Host: a:65536\r\n\r\n", Refused(400, "Host")),
        ("a port in letters", "Host: a:http\r\n\r\n", Refused(400, "Host")),
        ("two ports", "Host: a:80:80\r\n\r\n", Refused(400, "Host")),
        ("an encoded host", "Host: a%2Db\r\n\r\n", Served("POST /", "")),
        ("half an encoding", "Host: a%2\r\n\r\n", Refused(400, "Host")),
        ("IPv6", "Host: [::1]:80\r\n\r\n", Served("POST /", "")),
        ("IPv6 without a port", "Host: [2001:db8::1]\r\n\r\n", Served("POST /", "")),
        ("IPv6 without brackets", "Host: ::1\r\n\r\n", Refused(400, "Host")),
        ("IPv6 with one bracket", "Host: [::1\r\n\r\n", Refused(400, "Host")),
        ("IPv6 with the other bracket", "Host: ::1]\r\n\r\n", Refused(400, "Host")),
        ("IPv4 in brackets", "Host: [127.0.0.1]\r\n\r\n", Refused(400, "Host")),
        ("letters behind brackets", "Host: [::1]a\r\n\r\n", Refused(400, "Host")),
        ("empty brackets", "Host: []\r\n\r\n", Refused(400, "Host")),
        ("a path in the host", "Host: a/b\r\n\r\n", Refused(400, "Host")),
        ("a user in the host", "Host: u@a\r\n\r\n", Refused(400, "Host")),
        ("a list of hosts", "Host: a b\r\n\r\n", Refused(400, "Host")),
        ("no colon", "Host: a\r\nxy\r\n\r\n", Refused(400, "name")),
        ("no name", "Host: a\r\n: y\r\n\r\n", Refused(400, "name")),
        ("space in a name", "Host: a\r\nx y: z\r\n\r\n", Refused(400, "name")),
        ("space before the first name", " Host: a\r\n\r\n", Refused(400, "")),
        ("quotes in a name", "Host: a\r\n\"x\": y\r\n\r\n", Refused(400, "name")),
        ("NUL in a name", "Host: a\r\nx\0: y\r\n\r\n", Refused(400, "name")),
        ("NUL in a value", "Host: a\r\nx: \0\r\n\r\n", Refused(400, "value")),
        ("DEL in a value", "Host: a\r\nx: \x7f\r\n\r\n", Refused(400, "value")),
        ("tab in a value", "Host: a\r\nx: a\tb\r\n\r\n", Served("POST /", "")),
        ("UTF-8 in a value", "Host: a\r\nx: ü\r\n\r\n", Served("POST /", "")),
        ("UTF-8 in a name", "Host: a\r\nü: x\r\n\r\n", Refused(400, "name")),
        ("Connection: close", "Host: a\r\nConnection: x, Close\r\n\r\n", Served("POST /", "")),
    ]);
    let server = Server::start();
    let latin = b"POST / HTTP/1.1\r\nHost: a\r\nx: \xe9\xff\x80\r\n\r\n";
    check(&server, "obs-text in a value", latin, Served("POST /", ""));
    check(&server, "no host on HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n", Served("GET /", ""));
    let old = b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n";
    check(&server, "two hosts on HTTP/1.0", old, Refused(400, "Host"));
}

#[test]
fn the_authority_of_an_absolute_form_wins_over_the_host_header() {
    let server = Server::start();
    for (target, host, seen) in [
        ("http://b.example:81/host", "a", "b.example:81"),
        ("https://B/host", "a:80", "B"),
        ("/host", "a:80", "a:80"),
    ] {
        let line = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = server.exchange(line);
        assert!(answer.ends_with(&format!("\r\n\r\n{seen}")), "{target}: {answer}");
    }
}
