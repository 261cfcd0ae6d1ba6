//! The client of commands that use the API of a running server.

use crate::args::Remote;
use anyhow::Context as _;
use restive_kit::client::Client;

pub fn client(remote: &Remote) -> anyhow::Result<Client> {
    let mut builder = Client::builder(&remote.url).key(&remote.key);
    if let Some(version) = &remote.api_version {
        builder = builder.version(version);
    }
    if let Some(file) = &remote.ca {
        let pem = std::fs::read(file)
            .with_context(|| format!("the file {} cannot be read", file.display()))?;
        builder = builder.authorities(&pem);
    }
    Ok(builder.build()?)
}
