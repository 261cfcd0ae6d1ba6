//! `[live]`: the effect of its settings, and the findings about impossible ones.

use super::findings::check;
use crate::parse::parse;
use std::time::Duration;

const FEED: &str = "\n[collections.messages]\nfeed = true\n[collections.messages.fields]\n\
                    text = 'string'";

#[test]
fn the_channels_are_where_the_file_says_or_at_their_usual_places() {
    let usual = parse(FEED).unwrap().live;
    assert_eq!((usual.mount.as_str(), usual.socket.as_str()), ("/api", "/ws"));
    assert_eq!(usual.poll_timeout, Duration::from_secs(25));
    assert_eq!((usual.max_connections, usual.max_connections_per_account), (100_000, 50_000));
    assert!(usual.origins.is_empty());
    let said = "[live]
mount = '/live/v2'
socket = '/v1/socket'
poll_timeout = '30s'
origins = ['https://Shop.example', 'http://localhost:3000', '*']
max_connections = 10
max_connections_per_account = 10000000";
    let live = parse(&format!("{said}{FEED}")).unwrap().live;
    assert_eq!((live.mount.as_str(), live.socket.as_str()), ("/live/v2", "/v1/socket"));
    assert_eq!(live.poll_timeout, Duration::from_secs(30));
    assert_eq!(live.origins, ["https://shop.example", "http://localhost:3000", "*"]);
    assert_eq!((live.max_connections, live.max_connections_per_account), (10, 10_000_000));
}

#[test]
fn each_setting_is_bounded_and_reported_with_its_place() {
    for (setting, expected) in [
        ("mount = 'api'", "1:18: `mount` must start with a slash and have lower-case segments…"),
        ("mount = '/'", "1:18: `mount` must start with a slash…"),
        ("mount = '/Api'", "1:18: `mount` must start with a slash…"),
        ("socket = '/a//b'", "1:19: `socket` must start with a slash…"),
        ("socket = 7", "1:19: `socket` must be a string, not a whole number"),
        ("mount = '/v1'", "1:18: `/v1` is another route of the service"),
        ("mount = '/metrics'", "1:18: `/metrics` is another route of the service"),
        ("socket = '/health'", "1:19: `/health` is another route of the service"),
        ("socket = '/api'", "1:19: `mount` and `socket` must be two paths"),
        ("mount = '/ws'", "1:1: `mount` and `socket` must be two paths"),
        ("poll_timeout = '24s'", "1:25: `poll_timeout` must be from 25s to 30s"),
        ("poll_timeout = '31s'", "1:25: `poll_timeout` must be from 25s to 30s"),
        ("poll_timeout = 'long'", "1:25: `poll_timeout` must be a whole number and a unit…"),
        ("poll_timeout = 25", "1:25: `poll_timeout` must be a string, not a whole number"),
        ("max_connections = 0", "1:28: `max_connections` must be from 1 to 10000000, not 0"),
        (
            "max_connections_per_account = 10000001",
            "1:40: `max_connections_per_account` must be from 1 to 10000000, not 10000001",
        ),
        ("max_connections = 'many'", "1:28: `max_connections` must be a whole number, not a…"),
        ("origins = '*'", "1:20: `origins` must be a list of strings, not a string"),
        ("orgins = []", "1:10: unknown key `orgins` in [live] (did you mean `origins`?)"),
    ] {
        check(&format!("live = {{ {setting} }}{FEED}"), &[expected]);
    }
    check(&format!("live = 3{FEED}"), &["1:8: `live` must be a table, not a whole number"]);
}

#[test]
fn origins_have_the_form_that_browsers_send() {
    for origin in [
        "shop.example",
        "https://",
        "ftp://shop.example",
        "https://shop.example/",
        "https://*.shop.example",
        "https://ann@shop.example",
        "https://shöp.example",
        "",
    ] {
        let input = format!("live = {{ origins = ['https://a.example', '{origin}'] }}{FEED}");
        check(&input, &["1:42: `origins` holds origins such as \"https://shop.example\", or…"]);
    }
    for origin in ["http://shop.example:80", "https://shop.example:443"] {
        let input = format!("live = {{ origins = ['{origin}'] }}{FEED}");
        check(&input, &["1:21: browsers send this origin without its port; leave the port out"]);
    }
    let others = "'http://a.example:443', 'https://a.example:80', 'http://localhost:8080'";
    check(&format!("live = {{ origins = [{others}] }}{FEED}"), &[]);
    let many = vec!["'https://a.example'"; 51].join(",");
    let input = format!("live = {{ origins = [{many}] }}{FEED}");
    check(&input, &["1:1021: `origins` has at most 50 of them"]);
}

#[test]
fn no_channel_hides_another_route() {
    for (setting, expected) in [
        ("mount = '/v1/messages'", "1:18: `/v1/messages` is a collection; choose another path"),
        ("socket = '/v1/messages/a'", "1:19: `/v1/messages` is a collection; choose another…"),
        ("socket = '/v1/presence'", "1:19: `/v1/presence` is a collection; choose another path"),
        ("socket = '/api/messages'", "1:19: `/api/messages` is another live channel"),
        ("socket = '/api/events'", "1:19: `/api/events` is another live channel"),
    ] {
        check(&format!("live = {{ {setting} }}{FEED}"), &[expected]);
    }
    check(&format!("live = {{ mount = '/v1/live', socket = '/v1/live/ws' }}{FEED}"), &[]);
}
