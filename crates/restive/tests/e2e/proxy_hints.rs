//! Early hints that the proxy has learned from earlier responses to the same URL: what is sent to
//! whom, and what is never learned.

use crate::deadline::Deadline as _;
use crate::harness::{Answer, Server, executable};
use crate::proxy_edge::{backend, ok};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const LINK: &str = "</style.css>; rel=preload; as=style";

/// A backend whose responses have the header lines that the request has in `x-say`.
fn parrot() -> SocketAddr {
    backend(|request| {
        let said = request.split("\r\nx-say: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let lines: String =
            said.unwrap_or_default().split('|').filter(|line| !line.is_empty()).map(line).collect();
        ok(&lines, "page")
    })
}

fn line(text: &str) -> String {
    format!("{text}\r\n")
}

/// A proxy with one route; `more` are its keys.
fn proxy(backend: SocketAddr, more: &str, arguments: &[&str]) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "[backends.b]\nto = [\"{backend}\"]\ncheck = \"off\"\n[[sites]]\n[[sites.routes]]\n\
         to = \"b\"\n{more}"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(executable());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
    command.arg("--config").arg(file).args(arguments);
    Server::spawn(command, folder)
}

/// A request of a client without credentials; the backend says these header lines.
fn get(proxy: &Server, path: &str, said: &str) -> Answer {
    proxy.ask_anonymously("GET", path).header("x-say", said).send()
}

/// The links of the interim responses.
fn hinted(answer: &Answer) -> Vec<&str> {
    assert_eq!((answer.status, answer.text.as_str()), (200, "page"));
    let fields = answer.interim.iter().flatten();
    fields.map(|(name, value)| if name == "link" { value.as_str() } else { "?" }).collect()
}

#[test]
fn links_of_an_earlier_response_are_sent_before_the_next_one() {
    let backend = parrot();
    for (version, arguments) in [("http2", &[][..]), ("http3", &["--tls", "self-signed"])] {
        for more in ["", "cache = \"off\"\n"] {
            let proxy = proxy(backend, more, arguments).over(version);
            let say = format!("link: {LINK}, </next>; rel=next|link: <https://b>; rel=preconnect");
            assert!(hinted(&get(&proxy, "/page?a=1", &say)).is_empty(), "{version}");
            let expected = [LINK, "<https://b>; rel=preconnect"];
            assert_eq!(hinted(&get(&proxy, "/page?a=1", &say)), expected, "{version} {more}");
            for other in ["/page?a=2", "/page", "/other"] {
                assert!(hinted(&get(&proxy, other, "")).is_empty(), "{version}: {other}");
            }
            let post = proxy.ask_anonymously("POST", "/page?a=1").body("x").send();
            assert!(post.interim.is_empty(), "{version}: a write is not hinted at");
            // A page that changes has other links, or none.
            assert_eq!(hinted(&get(&proxy, "/page?a=1", "link: </b.js>; rel=preload")).len(), 2);
            let changed = get(&proxy, "/page?a=1", "");
            assert_eq!(hinted(&changed), ["</b.js>; rel=preload"], "{version}");
            assert!(hinted(&get(&proxy, "/page?a=1", "")).is_empty(), "{version}");
        }
    }
}

#[test]
fn a_common_client_sees_the_hints_before_the_page() {
    let proxy = proxy(parrot(), "", &[]);
    let ask = || {
        let output = Command::new("curl")
            .args(["-s", "--max-time", "30", "--http2-prior-knowledge", "--include"])
            .args(["-H", &format!("x-say: link: {LINK}"), &proxy.url("/page")])
            .output_in_time()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(ask().starts_with("HTTP/2 200"));
    let second = ask();
    let (first, rest) = second.split_once("\r\n\r\n").unwrap();
    assert_eq!(first.trim(), format!("HTTP/2 103 \r\nlink: {LINK}"), "{second}");
    assert!(rest.starts_with("HTTP/2 200") && rest.ends_with("page"), "{second}");
}

#[test]
fn nothing_is_learned_from_a_response_that_is_for_one_client() {
    let proxy = proxy(parrot(), "", &[]).over("http2");
    for (number, (fields, said, is_learned)) in [
        (&[][..], "", true),
        (&[], "cache-control: no-cache", true),
        (&[], "vary: accept-encoding", true),
        (&[], "cache-control: private", false),
        (&[], "cache-control: no-store", false),
        (&[], "set-cookie: a=b", false),
        (&[], "vary: cookie", false),
        (&[], "vary: *", false),
        (&[("authorization", "Bearer x")], "", false),
        (&[("authorization", "Bearer x")], "cache-control: public, no-cache", true),
        (&[("cookie", "user=ann")], "", false),
        (&[("cookie", "user=ann")], "cache-control: max-age=0", false),
        (&[("x-original-url", "/other")], "", false),
        (&[("x-http-method-override", "POST")], "", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        let say = format!("link: {LINK}|{said}");
        let mut ask = proxy.ask_anonymously("GET", &path).header("x-say", &say);
        for (name, value) in fields {
            ask = ask.header(name, value);
        }
        assert_eq!(ask.send().status, 200);
        let next = get(&proxy, &path, "cache-control: no-store");
        assert_eq!(!hinted(&next).is_empty(), is_learned, "{fields:?} {said}");
    }
    // The body of a GET may decide about the page.
    let say = format!("link: {LINK}");
    proxy.ask_anonymously("GET", "/fat").header("x-say", &say).body("x").send();
    assert!(hinted(&get(&proxy, "/fat", "")).is_empty());
}

#[test]
fn hints_are_sent_to_clients_that_understand_them_and_can_be_turned_off() {
    let backend = parrot();
    let navigates = "sec-fetch-mode: navigate\r\n";
    for (more, arguments, fields, is_hinted) in [
        ("", &[][..], "", false),
        ("", &[], navigates, true),
        ("", &["--early-hints", "always"], "", true),
        ("", &["--early-hints", "off"], navigates, false),
        ("early_hints = \"off\"\n", &["--early-hints", "always"], navigates, false),
        ("early_hints = \"on\"\n", &["--early-hints", "always"], "", true),
    ] {
        let proxy = proxy(backend, more, arguments);
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx-say: link: {LINK}\r\n{fields}\r\n");
        let first = proxy.raw(head.as_bytes());
        assert!(first.starts_with("HTTP/1.1 200"), "{first}");
        let second = proxy.raw(head.as_bytes());
        let expected = format!("HTTP/1.1 103 Early Hints\r\nlink: {LINK}\r\n\r\nHTTP/1.1 200");
        assert_eq!(second.starts_with(&expected), is_hinted, "{more} {arguments:?}: {second}");
        assert_eq!(second.matches("HTTP/1.1 ").count(), 1 + usize::from(is_hinted), "{second}");
    }
}
