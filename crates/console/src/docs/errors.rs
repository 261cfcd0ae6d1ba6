//! The page of error codes, `/errors`: every `doc_url` leads to a heading of it.

use super::ErrorCode;
use super::markdown::{code, quote};

/// The page as Markdown. Its headings are the codes, so their ids are the codes too.
pub fn markdown(codes: &[ErrorCode]) -> String {
    let mut text = String::from(
        "# Error codes\n\n\
         The response to a failed request has a status, a type and a code. Codes are stable: \
         programs may rely on them, messages are for people. Codes about one field are in \
         `errors`, inside a [`validation_failed`](#validation_failed). `Restive-Error-Code` has \
         the code too.\n",
    );
    let (declared, own): (Vec<&ErrorCode>, Vec<&ErrorCode>) =
        codes.iter().partition(|code| !code.actions.is_empty());
    if !declared.is_empty() {
        text.push_str("\n## Codes of this service\n\nRules of its schema declare these.\n");
        declared.iter().for_each(|one| push(one, &mut text));
    }
    text.push_str(
        "\n## Codes of action handlers\n\nA code that this page does not list is one that a \
         handler of the operator has sent: the message of the response explains it. Nothing was \
         changed. See [action handlers](/docs/handlers).\n\n\
         ## Codes of every service\n",
    );
    own.iter().for_each(|one| push(one, &mut text));
    text
}

fn push(one: &ErrorCode, text: &mut String) {
    let ErrorCode { code: name, status, kind, explanation, actions } = one;
    text.push_str(&format!(
        "\n### {}\n\nStatus {}, type {}. {}\n",
        code(name),
        quote(status),
        code(kind),
        quote(explanation)
    ));
    if !actions.is_empty() {
        let actions: Vec<String> = actions.iter().map(|action| code(action)).collect();
        text.push_str(&format!("Returned by {}.\n", actions.join(", ")));
    }
}
