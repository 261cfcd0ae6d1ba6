//! What `restive listen` prints: the secret, and the response to each event.

use super::Envelope;
use super::forward::Outcome;
use crate::outside::System;
use crate::route::Target;
use crate::text::{is_coloured, printable};
use api::Outside as _;
use restive_kit::signature::Secret;
use serde_json::json;

/// Characters of an error's body that are shown.
const BODY_CHARS: usize = 200;

pub struct Lines {
    json: bool,
    coloured: bool,
    /// Standard output has only the secret.
    pub to_stderr: bool,
}

impl Lines {
    pub fn new(json: bool, to_stderr: bool) -> Lines {
        let coloured = match to_stderr {
            true => is_coloured(&std::io::stderr()),
            false => is_coloured(&std::io::stdout()),
        };
        Lines { json, coloured: coloured && !json, to_stderr }
    }

    /// The first lines. The secret is shown because the user needs it to verify; it signs only
    /// requests of this session.
    pub fn greeting(&self, target: &Target, secret: &Secret) -> String {
        let (secret, target) = (secret.expose(), target.to_string());
        match (self.to_stderr, self.json) {
            (true, _) => format!("{secret}\n"),
            (false, true) => format!("{}\n", json!({ "secret": secret, "forward_to": target })),
            (false, false) => {
                format!("forwarding to {target}\nsigning secret of this session: {secret}\n")
            }
        }
    }

    pub fn outcome(&self, event: &Envelope, outcome: &Outcome) -> String {
        let milliseconds = outcome.duration.as_millis();
        let url = outcome.target.to_string();
        let time = System::new().now().to_iso();
        let status = outcome.response.as_ref().map(|response| response.status());
        if self.json {
            let line = json!({
                "time": time, "event": event.id, "type": event.kind, "url": url,
                "status": status.as_ref().ok(), "error": status.as_ref().err(),
                "duration_ms": u64::try_from(milliseconds).unwrap_or(u64::MAX),
            });
            return format!("{line}\n");
        }
        let (shown, tint) = match &status {
            Ok(status @ 200..300) => (status.to_string(), "32"),
            Ok(status) => (status.to_string(), "31"),
            Err(_) => ("---".to_owned(), "31"),
        };
        let (kind, id) = (printable(&event.kind), printable(&event.id));
        let detail = detail(outcome);
        match self.coloured {
            false => {
                format!("{time}  {shown}  {kind:<28}  {id}  {url}  {milliseconds} ms{detail}\n")
            }
            true => format!(
                "\x1b[2m{time}\x1b[0m  \x1b[{tint}m{shown}\x1b[0m  \x1b[36m{kind:<28}\x1b[0m  \
                 \x1b[2m{id}\x1b[0m  {url}  {milliseconds} ms\x1b[{tint}m{detail}\x1b[0m\n"
            ),
        }
    }
}

/// Why it failed, on the same line.
fn detail(outcome: &Outcome) -> String {
    match &outcome.response {
        Err(error) => format!("  {}", printable(error)),
        Ok(response) if (200..300).contains(&response.status()) => String::new(),
        Ok(response) => {
            let body = String::from_utf8_lossy(response.body());
            let body: String = body.chars().take(BODY_CHARS).collect();
            format!("  {}", printable(body.trim()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_is_coloured_for_terminals_only_and_cannot_control_them() {
        let event = Envelope { id: "evt_1".into(), kind: "a\u{1b}b".into(), text: "{}".into() };
        let outcome = Outcome {
            target: "localhost:3000/hook".parse().unwrap(),
            response: Err("refused\u{1b}[2J".to_owned()),
            duration: Duration::from_millis(7),
        };
        let shown = |json, coloured| {
            let lines = Lines { json, coloured, to_stderr: false };
            lines.outcome(&event, &outcome)
        };
        let plain = shown(false, false);
        assert!(!plain.contains('\u{1b}'), "{plain}");
        assert!(
            plain.ends_with("http://localhost:3000/hook  7 ms  refused\\u001b[2J\n"),
            "{plain}"
        );
        let coloured = shown(false, true);
        assert!(coloured.contains("\x1b[31m---\x1b[0m"), "{coloured}");
        assert!(!coloured.contains("\u{1b}[2J") && !coloured.contains("a\u{1b}b"), "{coloured}");
        let line: serde_json::Value = serde_json::from_str(&shown(true, false)).unwrap();
        assert_eq!((&line["event"], &line["duration_ms"]), (&json!("evt_1"), &json!(7)));
    }
}
