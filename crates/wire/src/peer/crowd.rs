//! How many connections each address has, over all threads: one client must not take the places of
//! all others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Addresses and their connections.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<HashMap<IpAddr, usize>>);

/// An address has as many as it may.
#[derive(Debug)]
pub(crate) struct Crowded;

/// One of an address's connections; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    crowd: Arc<Crowd>,
    address: IpAddr,
}

impl Crowd {
    /// None if the address has as many as it may.
    pub(crate) fn enter(self: &Arc<Crowd>, address: IpAddr, most: usize) -> Option<Place> {
        let address = household(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { crowd: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.crowd.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// What counts as one client: an address of IPv4, or the network (/64) of an address of IPv6, from
/// which a client takes as many addresses as it likes.
pub fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_gets_them_back() {
        let crowd = Arc::new(Crowd::default());
        let enter = |address: &str| crowd.enter(address.parse().unwrap(), 2);
        let first = enter("192.0.2.1").unwrap();
        let _second = enter("::ffff:192.0.2.1").unwrap();
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some(), "others are not concerned");
        drop(first);
        assert!(enter("192.0.2.1").is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let crowd = Arc::new(Crowd::default());
        let enter = |address: &str| crowd.enter(address.parse().unwrap(), 2);
        let kept = (enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap());
        assert!(enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
        drop(kept);
        assert!(crowd.0.lock().unwrap().is_empty(), "nothing is kept of those who left");
    }
}
