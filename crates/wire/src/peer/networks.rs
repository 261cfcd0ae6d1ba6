//! Networks whose addresses are trusted, as written by people: `10.0.0.0/8, ::1`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;

/// None by default. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Networks(Arc<[IpNet]>);

impl Networks {
    pub fn contains(&self, address: IpAddr) -> bool {
        // A socket that serves both versions shows IPv4 clients in their IPv6 form.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which entry is no network.
#[derive(Debug)]
pub struct NetworksFault(String);

impl fmt::Display for NetworksFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = &self.0;
        write!(
            out,
            "`{entry}` is no address and no network; write 10.1.2.3, 10.0.0.0/8 or fd00::/8"
        )
    }
}

impl std::error::Error for NetworksFault {}

/// Entries between commas; an address alone is a network of one.
impl FromStr for Networks {
    type Err = NetworksFault;

    fn from_str(text: &str) -> Result<Networks, NetworksFault> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let networks = entries.map(|entry| {
            let one = entry.parse::<IpAddr>().map(IpNet::from);
            one.or_else(|_| entry.parse()).map_err(|_| NetworksFault(entry.to_owned()))
        });
        Ok(Networks(networks.collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_networks_of_ipv4_and_ipv6_are_parsed() {
        let networks: Networks = "10.0.0.0/8, 192.0.2.7,fd00::/8 ,::1".parse().unwrap();
        for (address, trusted) in [
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("fd12::1", true),
            ("fe80::1", false),
            ("::1", true),
            ("::ffff:10.1.1.1", true),
            ("::ffff:11.1.1.1", false),
        ] {
            assert_eq!(networks.contains(address.parse().unwrap()), trusted, "{address}");
        }
        assert!("".parse::<Networks>().unwrap().is_empty());
    }

    #[test]
    fn an_invalid_network_is_named_in_the_error() {
        for wrong in ["10.0.0.0/33", "10.0.0", "example.com", "fd00::/129", "10.0.0.1:80"] {
            let fault = format!("10.0.0.1, {wrong}").parse::<Networks>().unwrap_err();
            assert!(fault.to_string().contains(wrong), "{fault}");
        }
    }
}
