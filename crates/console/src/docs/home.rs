//! `GET /`: what this service is, as a page for people and as JSON for clients.

use super::Service;
use super::markdown::{code, quote};
use serde_json::{Value, json};

/// The page as Markdown.
pub fn markdown(service: &Service, collections: &[(String, String)]) -> String {
    let mut text = format!("# {}\n\n", quote(&service.name));
    let usual = format!("The resources of {}, as JSON over HTTP.", service.name);
    text.push_str(&quote(service.description.as_deref().unwrap_or(&usual)));
    text.push_str(&format!("\n\nAPI version {}.\n\n", code(&service.version)));
    text.push_str("- [Documentation](/docs): guides and the reference of this API\n");
    if service.has_console {
        text.push_str(
            "- [Console](/console): records, events, deliveries and keys in the browser\n",
        );
    }
    text.push_str(
        "- [OpenAPI document](/openapi.json), for tools and generated clients\n\
         - [AsyncAPI document](/asyncapi.json), for the live channels\n\
         - [Error codes](/errors), [changes of each version](/docs/changelog)\n\
         - [llms.txt](/llms.txt), the documentation for language models\n\n",
    );
    text.push_str("## Resources\n\n| Resource | What it is |\n|---|---|\n");
    for (name, about) in collections {
        text.push_str(&format!(
            "| [{}](/docs/reference/{name}) | {} |\n",
            code(name),
            quote(about)
        ));
    }
    text.push_str(
        "\n## The first request\n\nEvery request has an API key. With `KEY` as the key:\n\n",
    );
    let first = collections.first().map_or("events", |(name, _)| name.as_str());
    let mount = service.mount.trim_end_matches('/');
    text.push_str(&format!("```sh\ncurl \"$URL{mount}/{first}\" -u \"$KEY:\"\n```\n"));
    text
}

/// The same for clients.
pub fn json(service: &Service) -> Value {
    let mut links = json!({
        "docs": "/docs",
        "openapi": "/openapi.json",
        "asyncapi": "/asyncapi.json",
        "errors": "/errors",
        "changelog": "/changelog",
        "health": "/health",
        "llms": "/llms.txt",
    });
    if service.has_console {
        links["console"] = "/console".into();
    }
    json!({
        "object": "service",
        "name": service.name,
        "description": service.description,
        "version": service.version,
        "resources": service.mount,
        "links": links,
    })
}
