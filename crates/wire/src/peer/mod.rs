//! The peer of a connection, and the client behind it. Only peers from declared networks of proxies
//! may name the client: at the beginning of a connection by the PROXY protocol (`introduction`), or
//! of each request (`forwarded`). The connections of an address are counted here as well (`quota`).

mod forwarded;
mod introduction;
mod networks;
mod quota;

pub(crate) use forwarded::{client, names_client};
pub(crate) use introduction::introduction;
pub use networks::{Networks, NetworksFault};
pub use quota::client_network;
pub(crate) use quota::{AddressQuota, AddressSlot};
