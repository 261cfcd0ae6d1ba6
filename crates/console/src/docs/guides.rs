//! The guides: the files in docs/, embedded. Their order is the order of the navigation.

pub struct Guide {
    /// The path below `/docs/`, and the name of the file.
    pub name: &'static str,
    pub title: &'static str,
    pub markdown: &'static str,
}

macro_rules! guides {
    ($($name:literal: $title:literal,)*) => {
        &[$(Guide {
            name: $name,
            title: $title,
            markdown: include_str!(concat!("../../../../docs/", $name, ".md")),
        }),*]
    };
}

pub const GUIDES: &[Guide] = guides! {
    "tutorial": "Tutorial: a helpdesk",
    "modelling": "Modelling",
    "lists": "Lists and search",
    "writing": "Writing safely",
    "authentication": "Keys, scopes and accounts",
    "keys": "Keys, requests and statistics over HTTP",
    "handlers": "Action handlers",
    "webhooks": "Webhooks",
    "consumers": "Receive webhooks",
    "live": "Live channels",
    "versions": "Versions",
    "generated-clients": "Generated clients",
    "schema": "The schema file",
    "console": "The console",
    "operations": "Operations",
    "scale": "Several servers on PostgreSQL",
    "proxy": "The reverse proxy",
    "disk": "Files and disk faults",
    "limits": "Limits, and what it does not do",
};
