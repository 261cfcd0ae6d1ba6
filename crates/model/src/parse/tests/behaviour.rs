//! Files that are wrong in what their collections do.

use super::findings::check;

#[test]
fn collection_settings_are_checked() {
    check(
        "[collections.books]
operations = ['list', 'patch', 'list', 'udpate']
cache_control = \"a\\nb\"
require_if_match = 1
indexes = [['titel'], ['title', 'title'], [], ['note'], ['title', 'title']]
[collections.books.fields]
title = { type = 'string', sort = true }
note = 'string'
[collections.authors]
operations = []
indexes = 'name'",
        &[
            "2:23: unknown operation `patch`; operations: list, get…",
            "2:32: `list` stands twice in `operations`",
            "2:40: unknown operation `udpate` (did you mean `update`?); operations: list…",
            "3:17: `cache_control` must be a header value…",
            "4:20: `require_if_match` must be true or false, not a whole number",
            "5:13: `titel` is not declared in fields (did you mean `title`?)",
            "5:33: `title` stands twice in this index",
            "5:43: an index has 1 to 8 fields",
            "5:48: `note` cannot be indexed; give it `filter` or `sort` first",
            "5:57: this index stands twice; remove one",
            "5:67: `title` stands twice in this index",
            "10:14: `operations` must name at least one",
            "11:11: `indexes` must be a list of lists of field names, not a string",
        ],
    );
}

#[test]
fn early_hints_are_links() {
    check(
        "[service]
early_hints = ['/style.css']
[collections.books]
early_hints = ['</a>; rel=preload', '</b>']
fields = { title = 'string' }",
        &[
            "2:16: `early_hints` holds values of the header Link…",
            "4:37: `early_hints` holds values of the header Link…",
        ],
    );
}

#[test]
fn feeds_have_no_parent_children_states_or_references() {
    check(
        "[collections.messages]
feed = { live_name = 'Message' }
id_prefix = 'msg'
parent = 'books'
states = { names = ['a'] }
fields.key = { type = 'string', unique = true }
[collections.books.fields]
message = { ref = 'messages' }
[collections.notes]
parent = 'messages'
[collections.hints]
feed = 'yes'
[collections.tips]
feed = { live_name = 'hint' }
[collections.pings]
feed = true
[collections.cards]
feed = { live_name = 'typing' }",
        &[
            "2:22: `live_name` must be in snake_case, such as \"message\"",
            "3:13: the ids of a feed are whole numbers; remove `id_prefix`",
            "4:1: a feed has no `parent`; remove it or the `feed`",
            "5:1: a feed has no `states`; remove it or the `feed`",
            "6:8: a feed keeps everything it is sent; remove `unique`",
            "8:19: `messages` is a feed; its records cannot be referred to",
            "10:10: `messages` is a feed and cannot have children",
            "12:8: `feed` must be true or a table with `live_name`, not a string",
            "14:8: the live name `hint` is that of `hints` already",
            "16:8: `ping` is a message of the live channels; declare another `live_name`",
            "18:8: `typing` is a message of the live channels; declare another `live_name`",
        ],
    );
}

#[test]
fn states_are_known_wherever_they_are_named() {
    check(
        "[collections.orders.states]
initial = 'creatd'
names = ['created', 'paid', 'paid', 'On Hold']
[collections.orders.fields]
status = { type = 'integer', required = true }
[collections.orders.actions.pay]
from = ['created', 'payed', 'created']
to = 'payd'
set = { status = 'paid' }
[[collections.orders.timed]]
from = 'paid'
to = 'paid'
after = '400d'
[[collections.orders.timed]]
to = 'shiped'
after = '1 s'
[collections.books.actions.buy]
from = 'new'
[collections.shelves.states]
[collections.walls]
states = { names = [], field = 'id' }",
        &[
            "2:11: unknown state `creatd` (did you mean `created`?); states: created, paid…",
            "3:29: the state `paid` stands twice; remove one",
            "3:37: the state `On Hold` must be lower-case words joined by underscores",
            "5:1: `status` holds the state and must be a string",
            "5:30: unknown key `required` in field `status`; known: type, description…",
            "7:20: unknown state `payed` (did you mean `paid`?); states…",
            "7:29: `created` stands twice in `from`",
            "8:6: unknown state `payd` (did you mean `paid`?); states…",
            "9:9: `status` is the state; change it with `to`",
            "12:6: a timed transition must lead to another state",
            "13:9: `after` must be from 1ms to 365d",
            "14:1: timed transition needs `from`",
            "15:6: unknown state `shiped`…",
            "18:8: the collection declares no states; add a [….states] table",
            "19:22: the states of collection `shelves` needs `names`, the list of states",
            "21:20: `names` must list 1 to 64 states",
            "21:32: `id` is assigned by the service; remove the field",
        ],
    );
}

#[test]
fn actions_are_named_and_called_rightly() {
    check(
        "[collections.books.actions.Sell]
[collections.books.actions.reviews]
event = 'sold'
handler = 'ftp://x'
[collections.books.actions.lend]
params = { Days = 'integer', to = { type = 'string', filter = true } }
from = []
handler = { timeout = '2m' }
[collections.books.actions]
scan = true
[collections.reviews]
parent = 'books'
[collections.reviews.actions.move]
set = { book = 'x', id = 'y', txt = 'z', stars = 'five' }
[collections.reviews.fields]
text = 'string'
stars = 'integer'",
        &[
            "1:28: the action name `Sell` must be lower-case words joined by single hyphens",
            "2:28: `reviews` is a child collection already; one path cannot be both",
            "3:9: the action event type `sold` must be lower-case words joined by dots…",
            "4:11: the handler must be an http:// or https:// URL with a host",
            "6:12: the parameter `Days` must be in snake_case",
            "6:54: unknown key `filter` in parameter `to`; known: type…",
            "7:8: `from` must name at least one state; leave it out to allow all",
            "8:1: `handler` needs `url`",
            "8:23: `timeout` must be from 100ms to 1m",
            "10:8: `scan` must be a table, not a boolean",
            "14:9: `book` is assigned by the service; it cannot be set",
            "14:21: `id` is assigned by the service; it cannot be set",
            "14:31: `txt` is not declared in fields (did you mean `text`?)",
            "14:50: the value of `stars` must be a whole number",
        ],
    );
}

#[test]
fn rules_answer_with_a_client_error_and_name_the_event_of_their_change() {
    check(
        "[collections.orders.fields]
note = 'string'
[[collections.orders.actions.pay.rules]]
status = 500
type = 'Card Error'
[[collections.orders.actions.pay.rules]]
when = 'true'
message = 'No.'
extra = { code = 'x', 'Decline-Code' = 'y' }
set = { note = 'refused' }
[[collections.orders.actions.pay.rules]]
when = 'true'
message = 'No.'
event = 'order.refused'
param = 3
[collections.orders.actions.ship]
rules = 'none'",
        &[
            "3:1: rule needs `message`",
            "3:1: rule needs `when`",
            "4:10: `status` must be from 400 to 499, not 500",
            "5:8: `type` must be in snake_case, such as \"card_declined\"",
            "9:11: `code` is a member of every error body; choose another name",
            "9:23: `Decline-Code` must be in snake_case",
            "10:1: a rule that changes the record must name the `event` that reports it",
            "14:1: `event` reports a change; add `set` or `to`, or remove it",
            "15:9: `param` must be a string, not a whole number",
            "17:9: `rules` must be a list of tables, each under its own `[[…]]` header…",
        ],
    );
}

/// A rule with an error in it would otherwise never fire.
#[test]
fn expressions_are_compiled_and_their_names_looked_up() {
    // `when` begins in the 9th column of the 8th line.
    let check_when = |when: &str, expected: &[(usize, &str)]| {
        let input = format!(
            "[collections.orders.fields]
quantity = {{ type = 'integer', required = true }}
tags = {{ type = 'array', items = 'string', required = true }}
[collections.orders.actions.pay]
params = {{ amount = {{ type = 'integer', required = true }} }}
[[collections.orders.actions.pay.rules]]
message = 'No.'
when = \"{when}\""
        );
        let placed: Vec<String> =
            expected.iter().map(|(at, text)| format!("8:{}: {text}", 9 + at)).collect();
        check(&input, &placed.iter().map(String::as_str).collect::<Vec<_>>());
    };
    check_when("record.quantity > 100 && request.amount < 5", &[]);
    check_when("record.tags.exists(tag, tag == 'x') || size(record.id) > now.size()", &[]);
    check_when("type(request.amount) == int", &[]);
    check_when("has(request.amount) ? request.amount == 1 : record.created_at < now", &[]);
    check_when("client != '192.0.2.7' && !client.startsWith('10.')", &[]);
    check_when(
        "cliend == ''",
        &[(0, "unknown name `cliend` in the expression (did you mean `client`?); it can use …")],
    );
    check_when("record.quantity >", &[(17, "not a CEL expression: …")]);
    check_when(
        "record.quantiy > 1",
        &[(6, "`record.quantiy` names no field declared here (did you mean `quantity`?)")],
    );
    check_when(
        "has(request.amont)",
        &[(3, "`request.amont` names no parameter declared here (did you mean `amount`?)")],
    );
    check_when(
        "recrd.quantity > 1",
        &[(0, "unknown name `recrd` in the expression (did you mean…")],
    );
    check_when(
        "siz(record.tags) > 1",
        &[(3, "the expression calls 'siz', which does not exist (did you mean `size`?)")],
    );
    check_when(&"(".repeat(500), &[(0, "an expression nests at most 20 deep…")]);
    check_when(&"!".repeat(500), &[(0, "an expression nests at most 20 deep…")]);
    check_when(&"1+".repeat(600), &[(0, "an expression has at most 1000 characters")]);
    let deep = "1+".repeat(40) + "1 > 2";
    check_when(&deep, &[(0, "an expression has at most 32 levels of operators…")]);
}

#[test]
fn an_empty_expression_is_refused_at_the_place_of_its_string() {
    let input = "[[collections.orders.actions.pay.rules]]\nmessage = 'No.'\nwhen = ''";
    check(input, &["3:8: the expression is empty"]);
}

/// Strings with escapes have no places of their own in the file.
#[test]
fn a_complaint_points_into_the_file_where_it_can() {
    let fields = "[collections.orders.fields]\nnote = 'boolean'\n\
                  [[collections.orders.actions.pay.rules]]\nmessage = 'No.'\n";
    for (when, at) in [
        ("when = 'true && record.note'", "5:23"),
        ("when = \"true && record.note\"", "5:23"),
        ("when = '''\ntrue &&\n record.note'''", "7:8"),
        ("when = \"\"\"\ntrue && \\\n record.note\"\"\"", "5:8"),
        ("when = \"'\\u00e4' != '' && record.note\"", "5:8"),
        ("when = \"'ä' != '' && record.note\"", "5:28"),
    ] {
        let expected = format!("{at}: `record.note` can be null here; ask first: …");
        check(&format!("{fields}{when}"), &[&expected]);
    }
}

/// What is computed is held to the type of the field, and a literal to its limits, too.
#[test]
fn an_assigned_value_must_fit_its_field() {
    let check_set = |field: &str, value: &str, expected: &[&str]| {
        let input = format!(
            "[collections.orders.fields]
target = {field}
n = {{ type = 'integer', required = true }}
text = {{ type = 'string', required = true }}
bag = {{ type = 'object', required = true }}
maybe = 'integer'
[collections.orders.actions.pay]
set = {{ target = \"={value}\" }}"
        );
        let placed: Vec<String> = expected.iter().map(|text| format!("8:20: {text}")).collect();
        check(&input, &placed.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let needed = |kind: &str| format!("{{ type = '{kind}', required = true }}");
    let list = |kind: &str| format!("{{ type = 'array', items = '{kind}' }}");
    for (field, value) in [
        ("'integer'", "record.n + 1"),
        ("'integer'", "record.maybe"),
        ("'integer'", "null"),
        ("'number'", "record.n"),
        ("'number'", "record.n > 1 ? 1 : 2.5"),
        ("'string'", "record.text + now"),
        ("'timestamp'", "now"),
        ("'timestamp'", "'2026-01-31T12:00:00Z'"),
        ("'date'", "'2026-01-31'"),
        ("'boolean'", "record.n > 1"),
        ("'object'", "record.bag"),
        ("'object'", "{'a': [1, null], 'b': {'c': now}}"),
        (&list("string"), "[record.text]"),
        (&list("number"), "[1, 2.5]"),
        (&list("number"), "[]"),
        (
            &needed("string"),
            "has(record.bag.x) && type(record.bag.x) == string ? record.bag.x : ''",
        ),
        ("{ type = 'integer', max = 5 }", "5"),
    ] {
        check_set(field, value, &[]);
    }
    for (field, value, reason) in [
        ("'integer'", "'a'", "is a string, and `target` is of type integer"),
        ("'integer'", "1.5", "is a number, and `target` is of type integer; write `int(…)`"),
        ("'string'", "record.n", "is an integer, and `target` is of type string; write `string("),
        ("'timestamp'", "record.text", "is a string, and `target` is of type timestamp; take it "),
        ("'timestamp'", "'soon'", "is a string, and `target` is of type timestamp"),
        ("'date'", "now", "is a timestamp, and `target` is of type date"),
        ("'boolean'", "record.n", "is an integer, and `target` is of type boolean"),
        ("'object'", "[1]", "is a list, and `target` is of type object"),
        (&list("string"), "[1]", "is a list, and `target` is of type array"),
        (&list("integer"), "[record.maybe]", "is a list, and `target` is of type array"),
        (&needed("integer"), "record.maybe", "can be null, and `target` is required"),
        (&needed("integer"), "null", "can be null, and `target` is required"),
        ("'string'", "type(record.n)", "is a type, and `target` is of type string"),
        ("'string'", "record.n > 1 ? 1 : 'a'", "is of a type that is not known here"),
        ("{ type = 'integer', max = 5 }", "6", "is above `max` of `target`"),
        ("{ type = 'string', enum = ['a'] }", "'b'", "is none of the `enum` values of `target`"),
    ] {
        check_set(field, value, &[&format!("the value of `target` {reason}…")]);
    }
}

/// Clients of newer versions do not send what one of them removed.
#[test]
fn a_field_that_a_version_removed_can_be_null() {
    let input = "[collections.orders.fields]
old = { type = 'integer', required = true }
[[collections.orders.actions.pay.rules]]
message = 'No.'
when = 'record.old > 1'
[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'orders'
removed = { field = 'old' }
[[versions]]
date = '2026-01-01'
";
    check(input, &["5:15: `record.old` can be null here; ask first: …"]);
}

#[test]
fn a_timed_transition_has_no_client() {
    let input = "[collections.orders.states]
names = ['open', 'closed']
[collections.orders.fields]
by = 'string'
[[collections.orders.timed]]
from = 'open'
to = 'closed'
after = '1h'
set = { by = '=client' }";
    let message = "unknown name `client` in the expression; it can use `record`, `request` and …";
    check(input, &[&format!("9:16: {message}")]);
}
