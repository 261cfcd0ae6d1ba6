//! Which addresses may be talked to. The table is the model's; asked for every address at every
//! attempt, since names move.

use model::webhook::{Reach, address};
use std::net::IpAddr;

pub fn allows(address: IpAddr, reach: Reach) -> bool {
    address::refusal(address, reach).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn development_mode_allows_loopback_but_never_the_metadata_service() {
        for (address, public, development) in [
            ("93.184.215.14", true, true),
            ("127.0.0.1", false, true),
            ("10.0.0.1", false, true),
            ("169.254.169.254", false, false),
            ("fd00:ec2::254", false, false),
            ("::ffff:127.0.0.1", false, true),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let allowed = [Reach::Public, Reach::Development].map(|reach| allows(address, reach));
            assert_eq!(allowed, [public, development], "{address}");
        }
    }
}
