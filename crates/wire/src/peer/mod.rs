//! Who is at the other end of a connection, and for whom it speaks. Nobody is believed about that
//! but peers from networks that were declared as those of proxies: they may begin a connection with
//! the PROXY protocol (`introduction`) and name the client of a request (`forwarded`). What a peer
//! may hold is counted here as well (`quota`).

mod forwarded;
mod introduction;
mod networks;
mod quota;

pub(crate) use forwarded::client;
pub(crate) use introduction::introduction;
pub use networks::{Networks, NetworksFault};
pub use quota::client_network;
pub(crate) use quota::{AddressQuota, AddressSlot};
