//! Which addresses may be talked to. The rules are the model's; asked for every address at every
//! attempt, since names move.

use model::webhook::Reach;
use std::net::IpAddr;

pub fn allows(address: IpAddr, reach: Reach) -> bool {
    refusal(address, reach).is_none()
}

fn refusal(address: IpAddr, reach: Reach) -> Option<&'static str> {
    let public = match address {
        IpAddr::V4(v4) => !(v4.is_private() || v4.is_loopback() || v4.is_link_local()),
        IpAddr::V6(v6) => !v6.is_loopback(),
    };
    (reach == Reach::Public && !public).then_some("not a public address")
}
