//! One request in three languages: curl, TypeScript and Python, with the clients of this project.

use serde_json::Value;

pub struct Request<'a> {
    pub method: &'a str,
    /// With placeholders such as `{book_id}`.
    pub path: &'a str,
    pub body: Option<&'a Value>,
    pub is_list: bool,
}

impl Request<'_> {
    /// The request as Markdown.
    pub fn markdown(&self) -> String {
        format!(
            "```sh\n{}\n```\n\n```ts\n{}\n```\n\n```python\n{}\n```\n",
            self.curl(),
            self.typescript(),
            self.python()
        )
    }

    fn curl(&self) -> String {
        let method = match (self.method, self.body) {
            ("get", _) => String::new(),
            ("post", Some(_)) => String::new(),
            (method, _) => format!(" -X {}", method.to_uppercase()),
        };
        let mut text = format!("curl{method} \"$URL{}\" -u \"$KEY:\"", self.filled("$", ""));
        if let Some(body) = self.body {
            text.push_str(" \\\n  -H 'Content-Type: application/json'");
            text.push_str(&format!(" \\\n  -d '{}'", body.to_string().replace('\'', "'\\''")));
        }
        text
    }

    fn typescript(&self) -> String {
        let path = self.filled("${", "}");
        let path = if path.contains("${") { format!("`{path}`") } else { format!("\"{path}\"") };
        match (self.is_list, self.body) {
            (true, _) => {
                format!("for await (const one of client.list({path})) console.log(one.id);")
            }
            (_, Some(body)) => {
                format!("const answer = await client.{}({path}, {body});", self.method)
            }
            (_, None) => format!("const answer = await client.{}({path});", self.method),
        }
    }

    fn python(&self) -> String {
        let path = self.filled("{", "}");
        let path = if path.contains('{') { format!("f\"{path}\"") } else { format!("\"{path}\"") };
        match (self.is_list, self.body) {
            (true, _) => format!("for one in client.list({path}):\n    print(one[\"id\"])"),
            (_, Some(body)) => {
                format!("answer = client.{}({path}, {})", self.method, literal(body))
            }
            (_, None) => format!("answer = client.{}({path})", self.method),
        }
    }

    /// The path with a variable for each id: `{book_id}` becomes `$book_id`.
    fn filled(&self, before: &str, after: &str) -> String {
        self.path.replace('{', "\u{1}").replace('}', after).replace('\u{1}', before)
    }
}

/// A JSON value as Python writes it.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::String(name.clone()), literal(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        // A JSON text or number is also one of Python.
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_is_written_in_each_language() {
        let body = json!({ "name": "Ann's", "fine": true, "none": null });
        let request = Request {
            method: "post",
            path: "/v1/books/{book_id}/lend",
            body: Some(&body),
            is_list: false,
        };
        assert_eq!(
            request.curl(),
            "curl \"$URL/v1/books/$book_id/lend\" -u \"$KEY:\" \\\n  \
             -H 'Content-Type: application/json' \\\n  \
             -d '{\"fine\":true,\"name\":\"Ann'\\''s\",\"none\":null}'"
        );
        assert_eq!(
            request.typescript(),
            "const answer = await client.post(`/v1/books/${book_id}/lend`, \
             {\"fine\":true,\"name\":\"Ann's\",\"none\":null});"
        );
        assert_eq!(
            request.python(),
            "answer = client.post(f\"/v1/books/{book_id}/lend\", \
             {\"fine\": True, \"name\": \"Ann's\", \"none\": None})"
        );
        let list = Request { method: "get", path: "/v1/books", body: None, is_list: true };
        assert_eq!(list.curl(), "curl \"$URL/v1/books\" -u \"$KEY:\"");
        assert!(list.python().starts_with("for one in client.list(\"/v1/books\"):"));
        let delete = Request { method: "delete", path: "/v1/b/{b_id}", body: None, is_list: false };
        assert_eq!(delete.curl(), "curl -X DELETE \"$URL/v1/b/$b_id\" -u \"$KEY:\"");
    }
}
