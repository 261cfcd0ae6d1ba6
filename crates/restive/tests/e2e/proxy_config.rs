//! The configuration of the proxy: files, redirects, hosts, header edits, limits, reload, and what
//! the command says about errors.

use crate::harness::{eventually, executable, run};
use crate::proxy::configured;
use crate::sink::Sink;
use serde_json::{Value, json};
use std::process::Command;
use tempfile::TempDir;

#[test]
fn sites_and_routes_are_chosen_by_host_and_path() {
    let (api, pages) = (Sink::start(), Sink::start());
    let proxy = configured(&format!(
        r#"
[backends.api]
to = ["{}"]
check = "off"
[backends.pages]
to = ["{}"]
check = "off"
[[sites]]
hosts = ["api.example.com"]
[[sites.routes]]
path = "/v1/*"
to = "api"
strip_prefix = "/v1"
request_headers = {{ set = {{ x-env = "test" }}, remove = ["x-debug"] }}
response_headers = {{ set = {{ x-served-by = "edge" }} }}
[[sites.routes]]
path = "/old/*"
redirect = "https://{{host}}/new{{path}}"
[[sites]]
hosts = ["*.example.org"]
security_headers = false
[[sites.routes]]
to = "pages"
"#,
        api.address, pages.address
    ));
    let get = |host: &str, path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nx-debug: 1\r\n\r\n");
        proxy.raw(head.as_bytes())
    };
    let answer = get("api.example.com", "/v1/books?a=b");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("x-served-by: edge\r\n"), "{answer}");
    let request = &api.received()[0];
    assert_eq!(request.path, "/books?a=b");
    assert_eq!((request.header("x-env"), request.header("x-debug")), (Some("test"), None));
    let answer = get("API.example.com:80", "/old/x?y=1");
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    assert!(answer.contains("location: https://API.example.com:80/new/old/x?y=1\r\n"), "{answer}");
    for (host, path, status, code) in [
        ("api.example.com", "/other", "404", "route_not_found"),
        ("example.net", "/", "421", "unknown_host"),
    ] {
        let answer = get(host, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(code), "{answer}");
    }
    let answer = get("a.b.example.org", "/x");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(!answer.contains("x-frame-options"), "{answer}");
    assert_eq!(pages.received().len(), 1);
}

#[test]
fn files_are_served_and_nothing_outside_the_folder() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("public");
    std::fs::create_dir_all(root.join("docs")).unwrap();
    for (name, content) in [
        ("public/index.html", "<h1>home</h1>"),
        ("public/docs/index.html", "<h1>docs</h1>"),
        ("public/a b.css", "body {}"),
        ("public/.env", "SECRET"),
        ("secret.txt", "SECRET"),
    ] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let large: Vec<u8> = (0..600_000u32).map(|n| b'a' + (n % 26) as u8).collect();
    std::fs::write(root.join("large.txt"), &large).unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret.txt"), root.join("link.txt")).unwrap();
    let proxy = configured(&format!(
        "[[sites]]\n[[sites.routes]]\nfiles = {:?}\n[[sites.routes]]\npath = \"/static/*\"\n\
         files = {:?}\n",
        root.display().to_string(),
        root.display().to_string()
    ));
    let get = |path: &str| proxy.ask_anonymously("GET", path).send();
    let home = get("/");
    assert_eq!((home.status, home.text.as_str()), (200, "<h1>home</h1>"));
    assert_eq!(home.header("content-type"), Some("text/html; charset=utf-8"));
    let tag = home.header("etag").unwrap().to_owned();
    let again = proxy.ask_anonymously("GET", "/").header("if-none-match", &tag).send();
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    let moved = proxy.raw(b"GET /docs HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(moved.contains("location: /docs/\r\n"), "{moved}");
    assert_eq!(get("/docs/").text, "<h1>docs</h1>");
    assert_eq!(get("/a%20b.css").header("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(get("/static/docs/").text, "<h1>docs</h1>");
    assert_eq!(get("/large.txt").text.as_bytes(), large);
    let head = proxy.ask_anonymously("HEAD", "/large.txt").send();
    assert_eq!((head.status, head.header("content-length")), (200, Some("600000")));
    for path in ["/.env", "/link.txt", "/none", "/index.html/", "/docs/none"] {
        get(path).error(404, "route_not_found");
    }
    for path in ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt"] {
        let text = proxy.raw(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes());
        assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    }
    assert_eq!(proxy.ask_anonymously("POST", "/").body("x").send().status, 405);
}

#[test]
fn a_route_limits_the_requests_of_one_address() {
    let sink = Sink::start();
    let proxy = configured(&format!(
        "[backends.b]\nto = [\"{}\"]\ncheck = \"off\"\n[[sites]]\n[[sites.routes]]\nto = \"b\"\n\
         rate_limit = \"3/1h\"\n",
        sink.address
    ));
    for _ in 0..3 {
        assert_eq!(proxy.get("/").status, 200);
    }
    let refused = proxy.get("/");
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() > 3500);
    refused.error(429, "rate_limited");
    assert_eq!(sink.received().len(), 3);
}

#[test]
fn a_reload_replaces_the_configuration_and_a_broken_file_does_not() {
    let (old, new) = (Sink::start(), Sink::start());
    let text = |sink: &Sink| {
        let address = sink.address;
        format!(
            "[backends.b]\nto = [\"{address}\"]\ncheck = \"off\"\n[[sites]]\n[[sites.routes]]\n\
             to = \"b\"\n"
        )
    };
    let proxy = configured(&text(&old));
    assert_eq!(proxy.get("/").status, 200);
    let file = proxy.folder.path().join("proxy.toml");
    std::fs::write(&file, "[[sites]]\nhost = 1\n").unwrap();
    proxy.signal("-HUP");
    eventually("the error is logged", || {
        proxy.log.lock().unwrap().contains("the configuration was not reloaded")
    });
    assert_eq!((proxy.get("/").status, old.received().len()), (200, 2));
    std::fs::write(&file, text(&new)).unwrap();
    proxy.signal("-HUP");
    eventually("the new file is used", || {
        proxy.log.lock().unwrap().contains("the configuration was reloaded")
    });
    assert_eq!((proxy.get("/").status, new.received().len()), (200, 1));
    assert_eq!(proxy.stop().0, 0);
}

#[test]
fn the_command_explains_errors_and_routes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(
        &file,
        "[backends.a]\nto = [\"127.0.0.1:1\"]\nbalanc = \"x\"\n[[sites]]\n[[sites.routes]]\n\
         path = \"x\"\nto = \"b\"\n",
    )
    .unwrap();
    let path = file.display().to_string();
    let (_, error, code) = run(folder.path(), &["proxy", "--check", "--config", &path]);
    assert_eq!(code, 1);
    for part in ["3 error(s)", ":3:1: unknown key `balanc`", ":6:8: ", ":7:6: no backend is called"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    let (_, error, code) = run(folder.path(), &["proxy"]);
    assert!(code == 1 && error.contains("--to 127.0.0.1:8080"), "{error}");
    let (_, error, code) = run(folder.path(), &["proxy", "--to", "127.0.0.1"]);
    assert!(code == 1 && error.contains("has no port"), "{error}");
    let explained = Command::new(executable())
        .args(["proxy", "explain", "--to", "127.0.0.1:1", "POST", "http://a.example/v1/books"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&explained.stdout);
    assert!(text.contains("removes http://a.example/v1/books\n"), "{text}");
    for part in [
        "fan-out",
        "/*",
        "http://127.0.0.1:1",
        "round_robin",
        "read 30s",
        "only if nothing was sent",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (text, _, _) =
        run(folder.path(), &["proxy", "explain", "--json", "--to", "b:1", "GET", "http://a/"]);
    let rows: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows["rows"][1], json!({ "name": "route", "value": "/*" }));
}
