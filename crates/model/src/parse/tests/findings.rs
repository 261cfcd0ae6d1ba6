//! Files with wrong names, settings or fields: each finding has its place and says what to do.

use crate::parse::parse;

/// `input` yields exactly these findings, written `line:column: message`. An expected text that
/// ends in `…` is compared up to there.
#[track_caller]
pub(super) fn check(input: &str, expected: &[&str]) {
    let found: Vec<String> = match parse(input) {
        Ok(_) => Vec::new(),
        Err(findings) => findings.iter().map(ToString::to_string).collect(),
    };
    let same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| match expected.strip_suffix('…') {
            Some(head) => found.starts_with(head),
            None => found == expected,
        });
    assert!(same, "in\n{input}\nfound\n{}\nexpected\n{}", found.join("\n"), expected.join("\n"));
}

/// The same for the fields of a collection; line 1 is the first field.
#[track_caller]
fn check_fields(fields: &str, expected: &[&str]) {
    let header = "[collections.books.fields]\n";
    let shifted: Vec<String> = expected
        .iter()
        .map(|finding| {
            let (line, rest) = finding.split_once(':').unwrap();
            format!("{}:{rest}", line.parse::<usize>().unwrap() + 1)
        })
        .collect();
    let shifted: Vec<&str> = shifted.iter().map(String::as_str).collect();
    check(&format!("{header}{fields}"), &shifted);
}

#[test]
fn text_that_is_not_toml_is_reported_with_its_place() {
    check("", &["1:1: the file declares no collection; begin with [collections.<name>]"]);
    check("[collections.books\n", &["1:19: unclosed table, expected `]`"]);
    check("collections = 3", &["1:15: `collections` must be a table, not a whole number"]);
    check("[collections]", &["1:2: the file declares no collection; add [collections.<name>]"]);
    check("[collections]\nbooks = 1", &["2:9: `books` must be a table, not a whole number"]);
    check("[collections.books]\n[collections.books]", &["2:14: duplicate key"]);
}

#[test]
fn all_findings_of_a_file_are_reported_at_once_in_file_order() {
    check(
        "[servce]
[service]
mount = 'v1'
max_page = 0
[collections.book]
[collections.orders]
parent = 'boks'
[collections.orders.fields]
titel = { typ = 'string' }",
        &[
            "1:2: unknown key `servce` in the file (did you mean `service`?)",
            "3:9: `mount` must start with a slash and have lower-case segments, such as \"/v1\"",
            "4:12: `max_page` must be from 1 to 1000, not 0",
            "5:14: the collection name `book` must be a plural; if it is one, declare its singular \
             with `object`",
            "7:10: `parent` names the collection `boks`, which is not declared (did you mean…",
            "9:1: field `titel` needs `type`",
            "9:11: unknown key `typ` in field `titel` (did you mean `type`?)",
        ],
    );
}

#[test]
fn columns_count_characters_not_bytes() {
    check("[collections.'bücher']\n", &["1:14: the collection name `bücher` must be lower-case…"]);
    check(
        "collections.books = { description = 'üüü', x = 1 }",
        &["1:44: unknown key `x` in collection `books`; known: object, id_prefix…"],
    );
}

#[test]
fn service_settings_are_bounded() {
    let books = "\n[collections.books]";
    for (setting, expected) in [
        ("name = ''", "1:18: `name` must have 1 to 63 characters"),
        ("name = 3", "1:18: `name` must be a string, not a whole number"),
        ("version = '2026-02-30'", "1:21: `version` must be a date that exists…"),
        ("version = 7", "1:21: `version` must be a date that exists…"),
        ("mount = '/'", "1:19: `mount` must start with a slash…"),
        ("mount = '/api'", "1:19: `/api` is a route of the service; choose another mount"),
        ("errors = 'fancy'", "1:20: `errors` must be \"structured\" or \"flat\""),
        ("max_body = '1 TB'", "1:22: `max_body` must be from \"1 KiB\" to \"64 MiB\"…"),
        ("max_body = 5", "1:22: `max_body` must be from \"1 KiB\" to \"64 MiB\"…"),
        ("max_body = true", "1:22: `max_body` must be a size such as \"1 MiB\", not a boolean"),
        ("rate_limit = { requests = 0 }", "1:37: `requests` must be from 1 to 1000000, not 0"),
        ("rate_limit = { window = '5ms' }", "1:35: `window` must be from 1s to 1d"),
        ("rate_limit = { window = 'often' }", "1:35: `window` must be a whole number and a unit…"),
        (
            "max_page = 99999999999999999999",
            "1:22: `max_page` must be a whole number, not a number…",
        ),
    ] {
        check(&format!("service={{ {setting} }}{books}"), &[expected]);
    }
}

#[test]
fn collection_names_are_plural_lower_case_and_free() {
    for (name, expected) in [
        ("Books", "1:14: the collection name `Books` must be lower-case words joined by single…"),
        ("payment_intents", "1:14: the collection name `payment_intents` must be lower-case…"),
        ("a--bs", "1:14: the collection name `a--bs` must be lower-case words…"),
        ("stuff", "1:14: the collection name `stuff` must be a plural; if it is one, declare…"),
        ("events", "1:14: `events` is a collection of the service itself; choose another name"),
        ("lists", "1:14: the object name `list` is taken by the service; declare another…"),
        ("international-shipping-orders", "1:14: `international_shipping_order` is too long…"),
    ] {
        let known = match name {
            // An event is named after its object, which is taken as well.
            "events" => vec![expected, "1:14: the object name `event` is taken by the service…"],
            _ => vec![expected],
        };
        check(&format!("[collections.{name}]"), &known);
    }
    check("[collections.stuff]\nobject = 'thing'", &[]);
    check("[collections.stuff]\nobject = 'a Thing'\nid_prefix = 'x'", &["2:10: `object` must be…"]);
    check(
        "[collections.books]\nid_prefix = 'Book'",
        &["2:13: `id_prefix` must start with a letter…"],
    );
    check(
        "[collections.books]\nid_prefix = 'sk'",
        &["2:13: ids of the service itself begin with `sk`; choose another"],
    );
}

#[test]
fn two_collections_share_no_object_prefix_or_event() {
    check(
        "[collections.books]\n[collections.tomes]\nobject = 'book'",
        &[
            "2:14: `book.created` is an event of `books` already; name the events of two…",
            "2:14: `book.deleted` is an event of `books` already; name the events of two…",
            "2:14: `book.updated` is an event of `books` already; name the events of two…",
            "3:10: the object name `book` is that of `books` already; declare another `object`",
        ],
    );
    check(
        "[collections.books]\n[collections.tomes]\nid_prefix = 'book'",
        &["3:13: ids of `books` begin with `book` already; declare another `id_prefix`"],
    );
    check(
        "[collections.books]\n[collections.tomes.actions.sell]\nevent = 'book.updated'",
        &["3:9: `book.updated` is an event of `books` already; name the events of two…"],
    );
    check(
        "[collections.books]\nevents = { created = 'book.changed', updated = 'book.changed' }",
        &["2:48: `book.changed` stands for two kinds of change; name them apart"],
    );
    check(
        "[collections.books]\nevents.created = 'key.created'\nevents.gone = 'x'",
        &[
            "2:18: event types of `key` belong to the service; choose another",
            "3:8: unknown key `gone` in the events of `books`; known: created, updated, deleted",
        ],
    );
}

#[test]
fn parents_exist_and_nest_three_deep_without_circles() {
    check(
        "[collections.as]
[collections.bs]
parent = 'as'
[collections.cs]
parent = 'bs'
[collections.ds]
parent = 'cs'
[collections.es]
parent = 'ds'",
        &["7:10: paths nest at most 3 collections deep; use a `ref` field instead"],
    );
    check(
        "[collections.as]\nparent = 'bs'\n[collections.bs]\nparent = 'as'",
        &[
            "2:10: `as` is its own ancestor; break the circle of parents",
            "4:10: `bs` is its own ancestor; break the circle of parents",
        ],
    );
    check(
        "[collections.books]\nparent = 'books'",
        &["2:10: `books` is its own ancestor; break the circle of parents"],
    );
    check(
        "[collections.books]\n[collections.reviews]\nparent = 'books'\nfields.book = 'string'",
        &["4:8: `book` is the reference to the parent, which is there already"],
    );
    check(
        "[collections.objects]\n[collections.parts]\nparent = 'objects'",
        &["3:10: children would have two fields named `object`; declare another `object` for…"],
    );
}

#[test]
fn field_names_leave_room_for_assigned_fields_and_query_parameters() {
    check_fields(
        "id = 'string'
created_at = 'timestamp'
limit = 'integer'
q = 'string'
pageCount = 'integer'
price = { type = 'number', filter = true }
max_price = 'number'
min_stock = 'integer'
min_created_at = 'date'",
        &[
            "1:1: `id` is assigned by the service; remove the field",
            "2:1: `created_at` is assigned by the service; remove the field",
            "3:1: `limit` is a query parameter of every list; choose another field name",
            "4:1: `q` is a query parameter of every list; choose another field name",
            "5:1: the field name `pageCount` must be lower-case words joined by single…",
            "7:1: `max_price` is the range filter of `price`; choose another name",
            "9:1: `min_created_at` is the range filter of `created_at`; choose another name",
        ],
    );
}

#[test]
fn options_fit_the_type_of_their_field() {
    check_fields(
        "a = 'strng'
b = 'array'
c = { type = 'array' }
d = { type = 'array', items = 'object' }
e = 7
f = { type = 'string', min = 1 }
g = { type = 'integer', pattern = 'x', search = true }
h = { type = 'object', filter = true, sort = true, unique = true }
i = { type = 'boolean', max_length = 3, enum = ['x'] }
j = { type = 'integer', min = 1.5 }
k = { type = 'string', items = 'string' }
l = { type = 'string', required = 'yes' }
m = { type = 'number', max = inf }
n = { type = 'string', min_length = -1 }",
        &[
            "1:5: unknown type `strng` (did you mean `string`?); types: string, integer…",
            "2:5: an array needs `items`: write { type = \"array\", items = \"string\" }",
            "3:14: an array needs `items`, the type of its values: items = \"string\"",
            "4:31: `items` must be string, integer, number, boolean, timestamp or date",
            "5:5: `e` must be a type name or a table of options, not a whole number",
            "6:24: `min` is for integer and number fields only, and `f` is of type string; remove…",
            "7:25: `pattern` is for string fields only, and `g` is of type integer…",
            "7:40: `search` is for string fields only, and `g` is of type integer…",
            "8:24: `filter` is for fields of one value only, and `h` is of type object…",
            "8:39: `sort` is for fields of one value only, and `h` is of type object…",
            "8:52: `unique` is for fields of one value only, and `h` is of type object…",
            "9:25: `max_length` is for string and array fields only, and `i` is of type boolean…",
            "9:41: `enum` is for string fields only, and `i` is of type boolean…",
            "10:31: `min` of an integer field must be a whole number",
            "11:24: `items` is for array fields only, and `k` is of type string…",
            "12:35: `required` must be true or false, not a string",
            "13:30: `max` must be a finite number, not infinite or no number at all",
            "14:37: `min_length` must be from 0 to 2147483647, not -1",
        ],
    );
}

#[test]
fn limits_do_not_contradict_each_other() {
    check_fields(
        "a = { type = 'integer', min = 5, max = 3 }
b = { type = 'string', min_length = 5, max_length = 3 }
c = { type = 'string', required = true, default = 'x' }
d = { type = 'string', required = true, read_only = true }
e = { type = 'string', write_only = true, read_only = true }
f = { type = 'string', write_only = true, filter = true, sort = true, search = true }
g = { type = 'string', unique = true, default = 'x' }
h = { type = 'string', enum = [] }
i = { type = 'string', enum = ['x', 'y', 'x'] }
j = { type = 'string', pattern = '(' }
k = { type = 'string', pattern = '(a{1000}){1000}' }
rank = { type = 'integer', sort = true }",
        &[
            "1:31: `min` 5 is above `max` 3",
            "2:37: `min_length` 5 is above `max_length` 3",
            "3:41: `required` and `default` contradict each other; a default makes…",
            "4:24: `required` and `read_only` contradict each other; no request can send the field",
            "5:24: `write_only` and `read_only` contradict each other; keep one",
            "6:43: a write_only field is never served, so it cannot be searched by",
            "6:58: a write_only field is never served, so it cannot be searched by",
            "6:71: a write_only field is never served, so it cannot be searched by",
            "7:39: a `unique` field cannot have a `default`…",
            "8:31: `enum` must list at least one value",
            "9:42: `x` stands twice in `enum`; remove one",
            "10:34: `pattern` is no regular expression: unclosed group",
            "11:34: `pattern` is no regular expression: …",
            "12:28: `sort=rank` is the order of a search; give the field another name…",
        ],
    );
}

#[test]
fn defaults_are_values_that_the_field_would_accept() {
    check_fields(
        "a = { type = 'integer', default = 'x' }
b = { type = 'integer', min = 1, default = 0 }
c = { type = 'number', max = 1, default = 1.5 }
d = { type = 'string', min_length = 2, default = 'x' }
e = { type = 'string', pattern = '^a', default = 'b' }
f = { type = 'string', enum = ['x'], default = 'y' }
g = { type = 'date', default = '2026-02-30' }
h = { type = 'timestamp', default = 'noon' }
i = { type = 'array', items = 'integer', default = [1, 'x'] }
j = { type = 'array', items = 'integer', max_length = 1, default = [1, 2] }
k = { type = 'number', default = nan }
l = { type = 'integer', default = 99999999999999999999 }",
        &[
            "1:35: `default` must be a whole number",
            "2:44: `default` is below `min` of `b`",
            "3:43: `default` is above `max` of `c`",
            "4:50: `default` is shorter than `min_length` of `d`",
            "5:50: `default` does not match `pattern` of `e`",
            "6:48: `default` is none of the `enum` values of `f`",
            "7:32: `default` must be a date that exists, such as 2026-11-15",
            "8:37: `default` must be a date and time with an offset…",
            "9:52: `default` must be a whole number",
            "10:68: `default` is longer than `max_length` of `j`",
            "11:34: JSON has no such number; write a finite one",
            "12:35: this whole number does not fit 64 bits",
        ],
    );
}

#[test]
fn references_lead_to_collections_of_the_file() {
    check_fields(
        "a = { ref = 'boks' }
b = { ref = 'accounts' }
c = { type = 'integer', ref = 'books' }
d = { ref = 'books', pattern = 'x' }",
        &[
            "1:13: `ref` names the collection `boks`, which is not declared (did you mean `books`…",
            "2:13: `ref` names the collection `accounts`, which is not declared",
            "3:25: `ref` is for string fields only, and `c` is of type integer…",
            "4:22: `pattern` has no place on a reference; `d` holds an id",
        ],
    );
}

#[test]
fn on_delete_has_three_values_and_only_references_have_it() {
    check_fields(
        "a = { ref = 'books', on_delete = 'casscade' }
b = { type = 'string', on_delete = 'cascade' }
c = { ref = 'books', required = true, on_delete = 'set_null' }
d = { ref = 'books', on_delete = true }
e = { ref = 'books', on_delete = 'set null' }
f = { ref = 'books', required = true, on_delete = 'cascade' }
g = { ref = 'books', on_delete = 'restrict' }",
        &[
            "1:34: `on_delete` is restrict, cascade, set_null, not `casscade` (did you mean `casc…",
            "2:24: `on_delete` is for references only; add `ref` or remove it",
            "3:51: `c` is required and cannot become null; use `restrict` or `cascade`, or make i…",
            "4:34: `on_delete` must be a string, not a boolean",
            "5:34: `on_delete` is restrict, cascade, set_null, not `set null` (did you mean `set_…",
        ],
    );
}

#[test]
fn limits_of_the_file_are_reported() {
    let many: String = (0..70).map(|n| format!("[collections.a{n}s]\n")).collect();
    check(&many, &["65:14: a schema has at most 64 collections"]);
    let fields: String = (0..105).map(|n| format!("f{n} = 'string'\n")).collect();
    check_fields(&fields, &["102:1: a collection has at most 100 fields"]);
    let garbage: String = (0..500).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(parse(&garbage).unwrap_err().len(), 100);
    assert_eq!(parse(&" ".repeat(2 << 20)).unwrap_err().len(), 1);
}
