//! The part of the end-to-end tests that runs again over HTTP/2, over HTTP/3, and through the
//! proxy. The tests are chosen from the list that the test binary prints, and each module must have
//! its minimum number: a filter that no longer matches after a rename fails instead of passing.

use anyhow::{Result, bail};

use crate::ci::TEST_LIMIT;
use crate::process::{cargo, output, run_within};

/// Modules whose tests send all requests through the harness, so that they can run over any version
/// of HTTP, and the minimum number of their tests. A commit that removes a test lowers its number.
const MODULES: [(&str, usize); 18] = [
    ("actions", 10),
    ("auth", 9),
    ("concurrency", 6),
    ("conditions", 11),
    ("cursors", 6),
    ("delivery_lists", 2),
    ("endpoints", 5),
    ("errors", 8),
    ("events", 6),
    ("expansion", 6),
    ("idempotency", 14),
    ("limits", 8),
    ("lists", 10),
    ("live_browser", 2),
    ("resources", 13),
    ("service", 11),
    ("version_events", 2),
    ("version_limits", 5),
];
/// Tests in these modules that send raw HTTP/1.1 to a port without TLS.
const FIRST_VERSION_TESTS: [&str; 3] = [
    "limits::a_request_with_expect_gets_100_continue",
    "service::a_request_in_progress_completes_before_the_process_exits",
    "service::early_hints_precede_the_response_for_clients_that_support_them",
];
/// Tests of rules that the proxy changes: it refuses paths that servers read differently and
/// requests without a host, takes weak tags in `If-Match`, and outlives its backend. The last three
/// read a stream byte by byte, or start a server where another one was.
const PROXIED_TESTS: [&str; 9] = [
    "auth::an_id_of_another_type_is_not_found",
    "conditions::a_write_with_an_outdated_etag_is_refused",
    "errors::bytes_that_are_not_http_get_a_json_error_if_possible",
    "errors::every_wrong_path_method_and_format_gets_its_own_error",
    "service::a_request_in_progress_completes_before_the_process_exits",
    "service::early_hints_precede_the_response_for_clients_that_support_them",
    "version_events::events_of_each_operation_have_the_shape_of_both_versions_in_every_interface",
    "live_browser::a_browser_page_receives_every_event_once_across_a_restart",
    "live_browser::a_browser_page_refused_for_lack_of_room_reconnects_later",
];
/// Ways to the API besides HTTP/1.1 to its own port: the name for people, the one in the tests, and
/// the tests that do not apply.
pub const WAYS: [(&str, &str, &[&str]); 4] = [
    ("HTTP/2", "http2", &FIRST_VERSION_TESTS),
    ("HTTP/3", "http3", &FIRST_VERSION_TESTS),
    ("HTTP/1.1 through the proxy", "proxy", &PROXIED_TESTS),
    ("HTTP/1.1 through the proxy in its process", "edge", &PROXIED_TESTS),
];

/// Runs them on one way.
pub fn run_in(way: &str, skipped: &[&str], threads: &str) -> Result<()> {
    let listed = output(e2e().args(["--", "--list"]))?;
    let tests = chosen(&listed, &MODULES, skipped)?;
    println!("    {} tests in {way}", tests.len());
    let mut command = e2e();
    command.args(["--", "--exact"]).args(tests).env("RUST_TEST_THREADS", threads);
    run_within(TEST_LIMIT, command.env("RESTIVE_E2E_OVER", way))
}

fn e2e() -> std::process::Command {
    // For the whole workspace: a single package would be built with fewer features.
    cargo(["test", "--quiet", "--workspace", "--locked", "--test", "e2e"])
}

/// The full names of the tests to run, from the output of `--list`.
fn chosen<'a>(
    listed: &'a str,
    modules: &[(&str, usize)],
    skipped: &[&str],
) -> Result<Vec<&'a str>> {
    let all: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    if let Some(absent) = skipped.iter().find(|test| !all.contains(test)) {
        bail!("{absent} shall be skipped, but there is no such test");
    }
    let mut chosen = Vec::new();
    for (module, minimum) in modules {
        let in_module =
            |test: &&&str| test.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"));
        let tests: Vec<&str> = all.iter().filter(in_module).copied().collect();
        if tests.len() < *minimum {
            bail!("the module {module} has {} tests, expected at least {minimum}", tests.len());
        }
        chosen.extend(tests.into_iter().filter(|test| !skipped.contains(test)));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "auth::a: test\nauth::b: test\nlive_auth::c: test\nlists::d: test\n\n\
                          4 tests, 0 benchmarks\n";

    #[test]
    fn tests_are_chosen_by_their_whole_module_name() {
        let tests = chosen(LISTED, &[("auth", 2), ("lists", 1)], &["auth::b"]).unwrap();
        assert_eq!(tests, ["auth::a", "lists::d"]);
    }

    #[test]
    fn a_module_or_an_exception_without_its_tests_is_an_error() {
        for (module, skipped, told) in [
            (("auth", 3), "auth::a", "auth has 2 tests, expected at least 3"),
            (("odd", 1), "auth::a", "odd has 0 tests"),
            (("auth", 1), "auth::gone", "no such test"),
        ] {
            let error = chosen(LISTED, &[module], &[skipped]).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
